"""Commands that say what a bandit earns."""
