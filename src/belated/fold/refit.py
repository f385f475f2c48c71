"""Background fits. Updates continue while a fit runs, and are then replayed on its result."""

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

#: Fits with fewer floating-point operations run immediately, because starting a thread would cost
#: as much.
CHEAP = 2e6


@dataclass(eq=False)
class Fitted:
    """The result of a fit.

    Attributes:
        refit: the fit that produced this result.
        estimate: the estimate of the fitted coefficients.
        model: a model of these coefficients, with roots that include the decisions that were
            pending when the fit began; None if the weighting computes the roots.
        observed: the precision of the rewards that had arrived when the fit began.
        sums: the weighting's sums at this estimate.
        faded: the effective number of decisions and conversions, if they decay with age.
    """

    refit: Refit
    estimate: Estimate
    model: Model | None = None
    observed: Matrix | None = None
    sums: Any = None
    faded: tuple[float, int] | None = None


@dataclass(eq=False)
class Refit:
    """A fit in progress.

    Attributes:
        block: the block of coefficients to fit; None for all coefficients.
        before: number of batches of rows that were stored before the fit began but have not been
            added to the sums yet.
        data: the data to fit.
        since: rows that were stored after the fit began and have been added to the sums.
        changes: other changes to the sums after the fit began.
        steps: updates of the live model after the fit began, each with the method, the row and
            further arguments.
        fitted: the result, while steps are being replayed on it.
    """

    block: int | None = None
    before: int = 0
    data: Any = None
    since: list[Waiting] = field(default_factory=list)
    changes: list[Callable[[], None]] = field(default_factory=list)
    steps: deque[tuple[str, Vector | Row, tuple[float, ...]]] = field(default_factory=deque)
    fitted: Fitted | None = None

    def note(self, name: str, x: Vector | Row, arguments: tuple[float, ...]) -> None:
        """Record an update of the live model if it affects the coefficients being fitted."""
        if self.block is None:
            self.steps.append((name, x, arguments))
        elif x[0] == self.block:
            self.steps.append((name, x[1:], arguments))

    def repeat(self, limit: int | None) -> bool:
        """Replay steps on the result; return False if one of them fails.

        Args:
            limit: maximum number of steps to replay; None for all.
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
    """Runs a function in a separate thread, at low priority.

    Args:
        work: the function.

    Attributes:
        result: the return value.
        error: the exception that the function raised.

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
        """Whether the function has returned or raised."""
        return not self._thread.is_alive()

    def join(self) -> None:
        """Wait until the function has returned or raised."""
        self._thread.join()

    def _run(self) -> None:
        give_way()
        try:
            self.result = self._work()
        except BaseException as error:  # handled where the result is used
            self.error = error


def give_way() -> None:
    """Lower this thread's priority so that requests are handled first; only works on Linux."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        # Only root may set a lower niceness than that of the process.
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, 10))
