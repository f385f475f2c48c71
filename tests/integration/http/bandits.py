"""The bandits that these tests serve, and what a problem looks like."""

from __future__ import annotations

from datetime import timedelta

import httpx
import msgspec
import numpy as np

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, Shared
from belated.service import Definition
from belated.wire.messages import Problem

DIM = 4
JSON = {"content-type": "application/json"}
ROWS = np.round(np.random.default_rng(0).uniform(-1, 1, (3, DIM)), 3)
SHARED = Shared(context=["age"], action=["price"])


def definitions() -> list[Definition]:
    """Three bandits: rows, a short window, and features."""
    return [
        Definition(
            "rows",
            DelayedThompson(DIM, Bernoulli()),
            Explicit(timedelta(days=7)),
            partitions=2,
        ),
        Definition(
            "short",
            DelayedUCB(DIM, Gaussian()),
            Explicit(timedelta(milliseconds=500)),
            retention=2_500_000,
        ),
        Definition("shared", DelayedUCB(SHARED.dim, Bernoulli()), Explicit(), features=SHARED),
    ]


def problem_in(response: httpx.Response) -> Problem:
    """What was answered, which must be a problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = msgspec.json.decode(response.content, type=Problem)
    assert problem.status == response.status_code
    return problem
