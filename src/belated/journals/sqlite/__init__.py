"""Journals and cells in a SQLite file."""
