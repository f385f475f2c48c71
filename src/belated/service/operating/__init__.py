"""Tools for operators: configuration, logging, metrics and ``belated doctor``."""
