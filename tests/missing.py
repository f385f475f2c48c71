"""The number of missing rewards: along a run, and its distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Vector


def outstanding(delay: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return G_t for rounds 1 to T: t - 1 minus the number of rounds s with s + D_s ≤ t - 1."""
    horizon = len(delay)
    arrival = np.arange(1, horizon + 1) + delay
    arrived = np.bincount(arrival[arrival < horizon], minlength=horizon)
    return np.arange(horizon) - np.cumsum(arrived)


def chances(tails: Vector) -> Vector:
    """Return P(G > k) for k from 0, exactly, if rewards of all ages are missing independently.

    A reward of age i is missing with probability ``tails[i - 1]``.
    """
    law = np.ones(1)
    for p in tails:
        law = np.append(law * (1.0 - p), 0.0) + np.append(0.0, law * p)
    return np.append(np.cumsum(law[:0:-1])[::-1], 0.0)
