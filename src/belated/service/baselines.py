"""How to choose without a model: one action that is always safe, the first, or any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: What stands for no action: the first of an offer, or each alike.
FIRST, UNIFORM = "first", "uniform"


def choose_plainly(
    baseline: int | str,
    actions: Sequence[int | str] | None,
    count: int,
    rng: np.random.Generator,
) -> tuple[int, float]:
    """The index of an action, and the probability with which it is chosen.

    Args:
        baseline: the name of an action, :data:`FIRST` or :data:`UNIFORM`. Where the action is not
            offered, the first is chosen.
        actions: the names of those on offer; None: their indices.
        count: of the actions on offer.
        rng: of the choice.

    >>> rng = np.random.default_rng(0)
    >>> choose_plainly("blue", ["red", "blue"], 2, rng)
    (1, 1.0)
    >>> choose_plainly("uniform", None, 4, rng)[1]
    0.25
    """
    if baseline == UNIFORM:
        return int(rng.integers(count)), 1.0 / count
    names = range(count) if actions is None else actions
    return next((index for index, name in enumerate(names) if name == baseline), 0), 1.0
