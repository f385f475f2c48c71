"""Commands that simulate: one run, a comparison, and the bounds of the theory."""
