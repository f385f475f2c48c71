"""The HTTP interface of the service: routes, problems and status codes."""
