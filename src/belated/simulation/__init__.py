"""Simulation of policies: environments, rounds, and sweeps over many of them.

``sweeps`` needs the extra ``experiments`` and is imported separately.
"""

from belated.simulation import environments
from belated.simulation.rounds import Trace, simulate

__all__ = ["Trace", "environments", "simulate"]
