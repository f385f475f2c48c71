"""The bandits that are sent bad input."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, Shared
from belated.service import Definition

DIM = 4
#: Rewards from 0 to 1, and of any size; a context instead of rows; tokens that end within a second.
COIN, FREE, SHARED, BRIEF = "bad coin", "bad free", "bad shared", "bad brief"
READS = Shared(context=["age"], action=["price"])
DEFINITIONS = [
    Definition(
        COIN, DelayedThompson(DIM, Bernoulli()), Explicit(timedelta(days=1)), tokens="enforce"
    ),
    Definition(FREE, DelayedUCB(DIM, Gaussian()), Explicit()),
    Definition(SHARED, DelayedUCB(READS.dim, Bernoulli()), Explicit(), features=READS),
    Definition(BRIEF, DelayedUCB(DIM, Bernoulli()), Explicit(), tokens="enforce", token_lifetime=1),
]
#: How many bytes a body may have.
LIMIT = 1 << 21
ROW = [1.0, 0.5, -0.5, 0.0]
PLAIN: dict[str, Any] = {"rows": [ROW, ROW]}

# Where a test is not for the first two alike.
coin = pytest.mark.parametrize("asking", [COIN], indirect=True)
free = pytest.mark.parametrize("asking", [FREE], indirect=True)
shared = pytest.mark.parametrize("asking", [SHARED], indirect=True)
brief = pytest.mark.parametrize("asking", [BRIEF], indirect=True)


def packed(*numbers: float) -> str:
    """Rows as float32 numbers in base64."""
    return base64.b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()
