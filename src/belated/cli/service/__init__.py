"""Commands that set up, run and look after a service."""
