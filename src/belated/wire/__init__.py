"""The formats that client and service share: API keys, and request and response bodies."""
