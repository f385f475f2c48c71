"""``belated journal``: one module per command, and what they share."""
