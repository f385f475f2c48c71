"""``belated journal``: one module per command, and shared helpers."""
