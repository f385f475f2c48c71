"""Background fits: while a fit runs, updates continue, and are then replayed on its result."""

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

#: Fits with fewer floating-point operations run at once: handing them to a thread costs as much.
CHEAP = 2e6


@dataclass(eq=False)
class Fitted:
    """The result of a fit.

    Attributes:
        refit: the fit.
        estimate: the estimate of the fitted coefficients.
        model: a model of these coefficients, whose roots count decisions that were pending when the
            fit began; None if the weighting computes its own roots.
        observed: the precision of the rewards that had arrived when the fit began.
        sums: the weighting's sums at this estimate.
        faded: effective numbers of decisions and conversions, if they are weighted by age.
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
        block: the block of coefficients that is fitted; None: all of them.
        before: number of batches of rows that were stored before the fit began and have not been
            added to the sums yet.
        data: the data that is fitted.
        since: rows that were stored after the fit began and have been added to the sums.
        changes: other changes of the sums after the fit began.
        steps: updates of the live model after the fit began: method, row and further arguments.
        fitted: the result, while steps are replayed on it.
    """

    block: int | None = None
    before: int = 0
    data: Any = None
    since: list[Waiting] = field(default_factory=list)
    changes: list[Callable[[], None]] = field(default_factory=list)
    steps: deque[tuple[str, Vector | Row, tuple[float, ...]]] = field(default_factory=deque)
    fitted: Fitted | None = None

    def note(self, name: str, x: Vector | Row, arguments: tuple[float, ...]) -> None:
        """Record an update of the live model if it concerns the coefficients that are fitted."""
        if self.block is None:
            self.steps.append((name, x, arguments))
        elif x[0] == self.block:
            self.steps.append((name, x[1:], arguments))

    def repeat(self, limit: int | None) -> bool:
        """Replay steps on the result; return False if one of them fails.

        Args:
            limit: maximum number of steps; None: all.
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
    """Runs a function in its own thread, at low priority.

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
        except BaseException as error:  # raised again where the result is used
            self.error = error


def give_way() -> None:
    """Lower the priority of this thread, so that requests go first; effective on Linux only."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        nice = os.getpriority(os.PRIO_PROCESS, thread)
        # Only root may lower the niceness below that of the process.
        os.setpriority(os.PRIO_PROCESS, thread, max(nice, 10))
