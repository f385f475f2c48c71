"""Policies in simulated worlds: environments, rounds, and sweeps over many of them.

``sweeps`` needs the extra ``experiments`` and is imported on its own.
"""

from belated.simulation import environments
from belated.simulation.rounds import Trace, simulate

__all__ = ["Trace", "environments", "simulate"]
