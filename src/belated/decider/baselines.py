"""The baseline, which chooses without a model: a named action, the first, or a random action."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Baselines that are not action names: the first action of a request, or a random action.
FIRST, UNIFORM = "first", "uniform"


def choose_baseline(
    baseline: int | str,
    actions: Sequence[int | str] | None,
    count: int,
    rng: np.random.Generator,
) -> tuple[int, float]:
    """Return the index of an action, and the probability with which it is chosen.

    Args:
        baseline: the name of an action, :data:`FIRST` or :data:`UNIFORM`. If the request does not
            offer the named action, the first action is chosen.
        actions: the names of the actions; None if actions are identified by index.
        count: the number of actions.
        rng: source of randomness.

    >>> rng = np.random.default_rng(0)
    >>> choose_baseline("blue", ["red", "blue"], 2, rng)
    (1, 1.0)
    >>> choose_baseline("uniform", None, 4, rng)[1]
    0.25
    """
    if baseline == UNIFORM:
        return int(rng.integers(count)), 1.0 / count
    names = range(count) if actions is None else actions
    return next((index for index, name in enumerate(names) if name == baseline), 0), 1.0
