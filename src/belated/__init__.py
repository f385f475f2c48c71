"""Contextual bandits for rewards that come late."""

from belated.families import Bernoulli, Gaussian, Poisson

__all__ = ["Bernoulli", "Gaussian", "Poisson"]
