"""``belated keys``: one module for each command, and what they share."""
