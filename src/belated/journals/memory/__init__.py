"""Journals in the memory of this process, and what goes with them."""
