"""``belated demo``: two bandits in a simulated shop."""
