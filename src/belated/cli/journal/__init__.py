"""``belated journal``: one module for each command, and what they share."""
