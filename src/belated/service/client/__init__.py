"""The client of the service."""
