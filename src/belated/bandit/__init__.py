"""Contextual bandit: decide now, observe rewards later."""

from belated.bandit.bandit import Bandit

__all__ = ["Bandit"]
