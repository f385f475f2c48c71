"""Formats shared by the client and the service: API keys, and request and response bodies."""
