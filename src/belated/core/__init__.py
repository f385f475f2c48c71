"""Foundations of all other packages: events, ids, times, reward semantics, input validation."""
