"""One plain choice: from rows as a caller gives them, by one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from belated.events import Decision
from belated.models import Model
from belated.policies import Policy

_SINGLE, _DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


class PlainChooser:
    """Chooses one row for a decision that is about to be folded, if all about it is plain.

    That is :meth:`Decider.choose` without names of actions, where no request is kept.

    Args:
        policy: takes the greatest upper bound.
        new_id: makes a decision id.

    >>> from belated import Bernoulli, DelayedUCB
    >>> from belated.ids import new_id
    >>> policy = DelayedUCB(2, Bernoulli())
    >>> model, rng = Model(policy.start, policy.family), np.random.default_rng(7)
    >>> chooser = PlainChooser(policy, new_id)
    >>> chooser.choose(np.eye(2), model, version=1, now=5, rng=rng).propensity
    0.5
    >>> chooser.choose([[1.0, 0.0]], model, version=1, now=5, rng=rng) is None
    True
    """

    def __init__(self, policy: Policy, new_id: Callable[[int, int | None], str]) -> None:
        self._policy = policy
        self._new_id = new_id
        self._shape = (policy.dim,)

    def choose(
        self, rows: Any, model: Model, version: int, now: int, rng: np.random.Generator
    ) -> Decision | None:
        """Choose one row; returns None if it takes more than this, or fails.

        Args:
            rows: one for each action.
            model: with which to choose.
            version: of the model.
            now: the time, in microseconds since 1970.
            rng: source of randomness.
        """
        if (
            type(rows) is not np.ndarray
            or rows.dtype is not _DOUBLE
            or rows.shape[1:] != self._shape
            or not rows.flags.c_contiguous
            or not rows.shape[0]
            or model.rivals is not None
        ):
            return None
        choose, family = model._kernels.choose, model._family
        theta, root = model.theta, model.decided
        x = np.empty(self._shape, _SINGLE)
        try:
            width = self._policy.width(model)
            index, ties, mean, _ = choose(rows, theta, root, width, 0.0, family, x)
            if ties > 1:
                index, ties, mean, _ = choose(rows, theta, root, width, rng.random(), family, x)
        except Exception:  # the usual way says what is wrong
            return None
        if not abs(mean) < math.inf:
            return None
        return Decision(self._new_id(now, None), now, index, index, x, mean, 1.0 / ties, version)
