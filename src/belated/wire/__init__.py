"""What client and service send each other: API keys, and the bodies of requests and responses."""
