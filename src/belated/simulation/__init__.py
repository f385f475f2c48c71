"""Simulate policies: environments, rounds, and sweeps over many combinations.

``sweeps`` requires the ``experiments`` extra, and must be imported separately.
"""

from belated.simulation import environments
from belated.simulation.rounds import Trace, simulate

__all__ = ["Trace", "environments", "simulate"]
