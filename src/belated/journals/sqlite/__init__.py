"""Journals in a file of SQLite, and what goes with them."""
