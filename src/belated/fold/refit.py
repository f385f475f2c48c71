"""A fit beside the fold: steps go on meanwhile, and are then repeated on its result."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belated.core.inputs import Matrix, Row, Vector
from belated.fold.waiting import Waiting
from belated.model.blocks import add_gram
from belated.model.estimators import Estimate
from belated.model.model import Model

#: A fit of fewer floating-point operations is made at once: to hand it to a thread costs as much.
CHEAP = 2e6


@dataclass(eq=False)
class Fitted:
    """The result of a fit.

    Attributes:
        refit: the fit that it is the result of.
        estimate: of the coefficients that were fitted.
        model: a model of these coefficients, whose roots count what was pending at the beginning;
            None if the weighting makes roots of its own.
        observed: the precision of what had arrived at the beginning.
        sums: of the weighting's own kind, at this estimate.
        faded: what decisions and conversions count for, where they fade.
    """

    refit: Refit
    estimate: Estimate
    model: Model | None = None
    observed: Matrix | None = None
    sums: Any = None
    faded: tuple[float, int] | None = None


@dataclass(eq=False)
class Refit:
    """A fit that is under way.

    Attributes:
        block: of coefficients that is fitted; None: all of them.
        before: how often rows were stored before it began that are not in the sums yet.
        data: what is fitted.
        since: what was stored since, and is in the sums.
        changes: of the sums since, beside what was stored.
        steps: of the live model since the fit began: the method, the row and further arguments.
        fitted: the result, while steps are repeated on it.
    """

    block: int | None = None
    before: int = 0
    data: Any = None
    since: list[Waiting] = field(default_factory=list)
    changes: list[Callable[[], None]] = field(default_factory=list)
    steps: deque[tuple[str, Vector | Row, tuple[float, ...]]] = field(default_factory=deque)
    fitted: Fitted | None = None

    def note(self, name: str, x: Vector | Row, arguments: tuple[float, ...]) -> None:
        """Note a step of the live model, if it moves the coefficients that are fitted."""
        if self.block is None:
            self.steps.append((name, x, arguments))
        elif x[0] == self.block:
            self.steps.append((name, x[1:], arguments))

    def repeat(self, limit: int | None) -> bool:
        """Repeat steps on the result; return False if one of them cannot be made on it.

        Args:
            limit: how many, at most; None: all.
        """
        assert self.fitted is not None
        model, observed = self.fitted.model, self.fitted.observed
        if model is None:
            return True
        for _ in range(len(self.steps) if limit is None else min(limit, len(self.steps))):
            name, x, arguments = self.steps.popleft()
            if getattr(model, name)(x, *arguments) is False:
                return False
            if name == "retract" and observed is not None:
                *_, weight = arguments
                add_gram(observed, x[None, :].astype(np.float64), np.array([-weight]))
        return True


class BackgroundTask:
    """Computes something in a thread of its own, with low priority.

    Args:
        work: what to compute.

    Attributes:
        result: what it came to.
        error: what it raised.

    >>> task = BackgroundTask(lambda: 6 * 7)
    >>> task.join()
    >>> task.is_done, task.result
    (True, 42)
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="belated fit")
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the result, or the error, is known."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join()

    def _run(self) -> None:
        give_way()
        try:
            self.result = self._work()
        except BaseException as error:  # reported by whoever collects the result
            self.error = error


def give_way() -> None:
    """Let requests go before this thread: on Linux a thread has a niceness of its own."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        # Never less than the process was started with: only root may take that back.
        os.setpriority(os.PRIO_PROCESS, thread, max(now, 10))
