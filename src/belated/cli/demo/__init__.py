"""A simulated shop against a real service, for ``belated demo``."""
