"""The service over HTTP: routes, problems, status codes."""
