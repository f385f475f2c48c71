"""For operators: configuration, logs, metrics, doctor."""
