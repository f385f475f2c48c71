"""A journal in front of another one, with a file for events while that is unavailable."""
