"""From changes to sums, to an estimate, to the model.

The learner is told of each decision when it is made and of each reward when it comes. Its
weighting (:mod:`~belated.fold.weighting`) says how much they count by their age, and moves the
model: by one step at once, or under ``ConversionsOnly`` when the record is complete. The sums
behind it are folded in batches, all rows of a batch in one BLAS call, and the roots are made anew
from them. A fit over all observations, or over those of one block of coefficients, replaces θ̂ and
the weights when the estimator asks for it; where it takes long, in a thread.
"""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards
from belated.core.tuning import USUAL, Tuning
from belated.exceptions import BelatedError, FitWarning
from belated.fold.freezer import Freezer
from belated.fold.refit import CHEAP, BackgroundTask, Fitted, Refit
from belated.fold.times import SILENT, Times
from belated.fold.waiting import Waiting
from belated.fold.weighting import Outstanding, weighting_of
from belated.model.estimators import Estimate, Laplace
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.statistics import Information, Joined, Observations, Seen
from belated.policies.policy import Policy

#: Steps that are repeated on the result of a fit with each record: more than a record makes.
REPEATED = 4
#: Numbers in rows that wait, before they are added to the sums.
WAITING = 1 << 18


class Learner:
    """Keeps the model of a policy.

    Rows given to a learner are kept for a while: they must not change afterwards. What has arrived
    is kept by the partitions of a journal; a reward is known there by the handle that
    :meth:`learn` gave. Times are in microseconds since 1970: ``began`` is when a decision took
    effect, ``recorded`` the stamp of the record that says so.

    Args:
        policy: whose model is learned.
        rewards: what a missing reward means; None if every reward comes.
        partitions: of the journal.
        kernels: to use instead of the best available.
        tuning: sizes.
        background: whether fits that take long are made in a thread of their own.

    Attributes:
        now: the stamp of the latest record.
        defers: True in the service: a fit that is due is left to whoever calls :meth:`begin_fit`.
            Under ``ConversionsOnly``, steps also wait, until the model is exported.
        is_bulk: whether the model stands still, see :meth:`bulk`.
        outstanding: gives all pending decisions, by partition.
        summing: held while sums are changed, by a fit in a thread too.

    >>> from belated import Bernoulli
    >>> from belated.policies import DelayedUCB
    >>> learner = Learner(DelayedUCB(2, Bernoulli()))
    >>> x = np.array([0.5, 1.0])
    >>> learner.add_pending(x, 0.25)
    >>> handle = learner.learn(x, 1.0, 0.25)
    >>> learner.model.n, learner.model.pending
    (1, 0)
    >>> learner.estimate.theta.round(3)
    array([0.191, 0.383])
    """

    def __init__(
        self,
        policy: Policy,
        rewards: Rewards | None = None,
        *,
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
        background: bool = False,
    ) -> None:
        self.policy = policy
        self.model = Model(policy.start, policy.family, kernels=kernels)
        self.now = 0
        self.defers = self.is_bulk = False
        self.outstanding: Callable[[], Sequence[Outstanding]] = tuple
        kind = weighting_of(policy, rewards)
        family = policy.family if kind.adds else None
        self.observations = [
            Observations(policy.shape, family, block=tuning.block) for _ in range(partitions)
        ]
        self.times = [Times(kind.rivals) for _ in range(partitions)]
        self._limit = tuning.batch or max(1000, 10 * policy.dim)
        self._freezer = Freezer(self.observations, tuning.exact, self._limit)
        self._most_waiting = min(self._limit, max(64, WAITING // policy.row_width))
        self._waiting = Waiting(partitions)
        self._unsummed: deque[Waiting] = deque()
        self.summing = threading.Lock()
        self._background = background
        self._task: BackgroundTask | None = None
        self._given = [0] * partitions  # handles given out
        self._refit: Refit | None = None
        self.weighting = kind(self, rewards)

    # --- decisions -------------------------------------------------------------------------------

    def add_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """A decision was made; its reward is out."""
        weighting = self.weighting
        self.now = max(self.now, began)
        if weighting.gram:
            weight = 1.0
        self._count_pending(x, weight)
        asked = self._waiting.asked
        asked.append(x, 1.0 if weighting.counts_rows else weight, began)
        self._keep_up(len(asked.rows))

    def restore_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """A decision that was withdrawn counts again: its reward has come after all."""
        self.add_pending(x, weight, began)
        self.model.decisions -= 1

    def remove_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """A decision left without a reward: it no longer counts as explored."""
        weighting = self.weighting
        if weighting.gram:
            weight = 1.0
        left = self._waiting.left
        left.append(x, 1.0 if weighting.counts_rows else weight, began)
        if not self._discount_pending(x, weight):
            self.renew()
        else:
            self._keep_up(len(left.rows))

    def hold(self, x: Vector, weight: float) -> None:
        """A decision was made that has no record yet: it counts as explored."""
        self._hold(x, weight, 1)
        self._count_pending(x, 1.0 if self.weighting.gram else weight)

    def release(self, x: Vector, weight: float) -> None:
        """It has a record now and counts by that, or it never came to be."""
        self._hold(x, weight, -1)
        self.model.decisions -= 1
        if not self._discount_pending(x, 1.0 if self.weighting.gram else weight):
            self.renew()

    def _hold(self, x: Vector, weight: float, sign: int) -> None:
        weighting = self.weighting
        weight = 1.0 if weighting.counts_rows else weight
        one = Information.of(x[None, :], [weight], self.policy.shape)
        weighting.held = weighting.held + one if sign > 0 else weighting.held - one

    def _count_pending(self, x: Vector, weight: float) -> None:
        share = self.weighting.share_of_pending
        if self.is_bulk:
            self.model.pending += 1
            self.model.decisions += 1
        elif share == 0.0:
            self.model.note(x)
        else:
            self.step("add_pending", x, share * weight)

    def _discount_pending(self, x: Vector, weight: float) -> bool:
        """Returns False if the roots must be made anew."""
        share = self.weighting.share_of_pending
        if self.is_bulk or share == 0.0:
            self.model.pending -= 1
            return True
        done: bool = self.step("remove_pending", x, share * weight)
        return done

    def step(
        self, name: str, x: Vector | Row, *arguments: float, again: tuple[float, ...] = ()
    ) -> Any:
        """Move the model by one step; a fit under way will repeat it.

        Args:
            name: of the model's method.
            x: the row.
            arguments: further ones of the method.
            again: those with which a fit repeats it, if they differ.
        """
        result = getattr(self.model, name)(x, *arguments)
        if self._refit is not None:
            self._refit.note(name, x, again or arguments)
        return result

    def note(self, change: Callable[[], None]) -> None:
        """Have a fit under way change its sums, too."""
        if self._refit is not None:
            self._refit.changes.append(change)

    @property
    def data_under_fit(self) -> object:
        """What the fit is of that is under way; None if none is."""
        return None if self._refit is None else self._refit.data

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Many decisions were made whose rewards are out; within :meth:`bulk`."""
        self.model.pending += len(rows)
        self.model.decisions += len(rows)
        self.weighting.add_all_pending(rows, weights)

    # --- rewards ---------------------------------------------------------------------------------

    def learn(
        self,
        x: Vector,
        y: float,
        weight: float,
        began: int = 0,
        recorded: int = 0,
        partition: int = 0,
        predicted: Sequence[float] = (),
    ) -> int:
        """The reward of a decision came; returns a handle, by which it is revised or retracted.

        Args:
            x: the row of the decision.
            y: its reward.
            weight: what it was expected with.
            began: when the decision took effect.
            recorded: when the reward was recorded.
            partition: of the journal.
            predicted: the means that were predicted for the decision, to be compared.
        """
        model, weighting = self.model, self.weighting
        self.now = max(self.now, recorded)
        if weighting.gram:
            weight = 1.0
        if self.is_bulk:
            after = weight
            model.pending -= 1
            model.n += 1
        else:
            after = weighting.learn(x, y, weight, began)
        arrived, handle = self._waiting.came[partition], self._given[partition]
        arrived.append(x, 1.0 if weighting.counts_rows else weight, began)
        arrived.rewards.append(y)
        arrived.after.append(after)
        self._given[partition] = handle + 1
        if weighting.keeps_times:
            self.times[partition].append(began, recorded if y else SILENT, predicted)
        weighting.learned(x, y, handle, recorded, partition)
        if weighting.is_due and not self.is_bulk and not self.defers:
            self.refit()
        else:
            self._keep_up(len(arrived.rows))
        return handle

    def learn_page(
        self,
        decisions: int,
        asked: tuple[Row, Vector, NDArray[np.int64]],
        came: tuple[Row, Vector, NDArray[np.int64]],
        values: tuple[Vector, NDArray[np.int64]],
        old: NDArray[np.bool_],
        partition: int,
    ) -> None:
        """Many decisions were made, and many rewards came; within :meth:`bulk`.

        Args:
            decisions: how many were made.
            asked: of those whose rewards are still out, the rows, weights and times.
            came: the same of the decisions whose rewards came.
            values: the rewards, and when they were recorded.
            old: which of these decisions were made before.
            partition: of the journal.
        """
        assert self.is_bulk
        (rows, weights, began), (y, recorded) = came, values
        ended = rows[old], weights[old], began[old]
        pages = self._waiting.pages
        for (pending_rows, each, times), sign in ((asked, 1.0), (ended, -1.0)):
            if len(each):
                pages.append(pending_rows, sign * self.weighting.in_sums(each), times)
        self.model.decisions += decisions
        self.model.pending += decisions - len(y)
        self.model.n += len(y)
        if len(pages) >= self._limit or self._waiting.came[partition].rows:
            self.fold_in()  # also because handles are given in order
        if len(y):
            self.now = max(self.now, int(recorded[-1]))
            self.weighting.learned_page(rows, y, recorded)
            self.observations[partition].extend(rows, y)
            self._given[partition] += len(y)
            if self.weighting.keeps_times:
                self.times[partition].extend(began, np.where(y != 0.0, recorded, SILENT))
        self._compact()

    def revise(self, handle: int, y: float, recorded: int = 0, partition: int = 0) -> None:
        """The reward under a handle is another one."""
        self._store_waiting()
        self.now = max(self.now, recorded)
        store = self.observations[partition]
        row, _ = store.get(handle)
        self.weighting.before_change(handle, partition)
        before = store.revise(handle, y)
        if self.weighting.keeps_times and bool(y) != bool(before):
            self.times[partition].came[handle] = recorded if y else SILENT
        self.weighting.revise(handle, row, before, y, partition)

    def retract(self, handle: int, recorded: int = 0, partition: int = 0) -> Vector:
        """The reward under a handle never came, and nor is it waited for; returns its row."""
        self._store_waiting()
        self.now = max(self.now, recorded)
        store = self.observations[partition]
        row, y = store.get(handle)
        x = row.astype(np.float64)
        self.weighting.before_change(handle, partition)
        store.remove(handle)
        self.weighting.retract(handle, x, y, partition)
        return x

    def restart(self, handle: int, began: int, partition: int = 0) -> None:
        """The decision of a reward took effect at another time."""
        self.fold_in()
        self.weighting.restart(handle, began, partition)

    def forget(self, handle: int, partition: int = 0) -> None:
        """The reward under a handle will be neither revised nor retracted."""
        if self.weighting.adds:
            self._freezer.forget(handle, partition)

    def finish(self, recorded: int) -> None:
        """A record was folded, with all that it changed."""
        self.now = max(self.now, recorded)
        self.weighting.finish(recorded)
        if self._task is not None:
            self._collect(self._task)
        elif self._refit is not None and self._refit.fitted is not None:
            self._go_on_from_fit(REPEATED)

    # --- what has arrived ------------------------------------------------------------------------

    @property
    def observed(self) -> Seen:
        """All that has arrived, of every partition."""
        self._store_waiting()
        return self.observations[0] if len(self.observations) == 1 else Joined(self.observations)

    def next_handle(self, partition: int) -> int:
        """The handle that the next reward of a partition gets."""
        return self._given[partition]

    def rows(self, partition: int, handles: NDArray[np.int64]) -> Row:
        """The rows that rewards were learned with, by their handles."""
        came = self._waiting.came[partition].rows
        first = self._given[partition] - len(came)
        found = np.empty((len(handles), self.policy.row_width), dtype=np.float32)
        folded = handles < first
        found[folded] = self.observations[partition].rows(handles[folded])
        for i in np.flatnonzero(~folded):
            found[i] = came[handles[i] - first]
        return found

    def pack(self, partition: int) -> dict[str, bytes]:
        """What has arrived in a partition as bytes, and where to start the next fit."""
        self._store_waiting()
        pieces = self.observations[partition].pack() | {"theta": self.model.theta.tobytes()}
        if self.weighting.keeps_times:
            pieces |= self.times[partition].pack() | {"learned until": self.now.to_bytes(8)}
        return pieces | self.weighting.pack(partition)

    def unpack(
        self, partition: int, pieces: dict[str, bytes], remembered: NDArray[np.int64]
    ) -> None:
        """Take what :meth:`pack` gave; within :meth:`bulk`.

        Args:
            partition: of the observations.
            pieces: what was packed.
            remembered: the handles of rewards that may still be revised or retracted.
        """
        store = self.observations[partition]
        store.unpack(pieces)
        store.forget_others(remembered)
        self._given[partition] = store.next_handle
        self.model.n += store.n
        self.model.decisions += store.n
        self.model.theta = np.frombuffer(pieces["theta"]).reshape(self.policy.shape).copy()
        if self.weighting.keeps_times:
            self.times[partition].unpack(pieces)
        self.weighting.unpack(partition, pieces)
        if self.weighting.keeps_times:
            self.now = max(self.now, int.from_bytes(pieces["learned until"]))

    # --- the model -------------------------------------------------------------------------------

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """Many changes at once: the model stands still, and is fitted anew at the end."""
        self.is_bulk = True
        try:
            yield
        except BelatedError:  # all changes before it count; any other error leaves one half done
            self._end_bulk()
            raise
        self._end_bulk()

    def _end_bulk(self) -> None:
        self.is_bulk = False
        self.weighting.catch_up()

    def refresh(self) -> None:
        """Bring the model up to date, also within :meth:`bulk`."""
        if self.is_bulk:
            self._end_bulk()
            self.is_bulk = True

    @property
    def estimate(self) -> Estimate:
        """A converged fit of what has arrived: a function of the set of rewards alone.

        So it is while all rows are kept. Those that were frozen count as they were frozen.
        """
        self._store_waiting()
        data, start = self.weighting.data(), self.model.theta
        return self.weighting.fit(data, self.policy.start, start, polish=True)

    def fit(self) -> None:
        """Fit what has arrived, and let the model go on from there."""
        self._refit = None  # one that was under way is of no use any longer
        self.fold_in()
        weighting, data = self.weighting, self.weighting.data()
        estimate = weighting.fit(data, weighting.prior, self.model.theta, polish=False)
        weighting.go_on_from(estimate, data)

    def fit_is_due(self) -> bool:
        """Whether there is enough that is new for a fit."""
        return self._refit is None and self.weighting.is_due

    @property
    def is_fitting(self) -> bool:
        """Whether a fit is under way, or steps are repeated on its result."""
        return self._refit is not None

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work on the sums or on a fit."""
        return self._task is not None

    def refit(self) -> None:
        """Make the fit that is due: in a thread, if that is allowed and the fit takes long."""
        if self._background and self.weighting.fit_cost > CHEAP:
            if self._task is None and self._refit is None:
                self._task = BackgroundTask(self.begin_fit())
        elif self.weighting.has_due_block:
            while self.fit_is_due():
                self.finish_fit(self.begin_fit()())
        else:
            self.fit()

    def begin_fit(self) -> Callable[[], Fitted]:
        """Start a fit of what has arrived by now.

        What this returns may be called in another thread, while further rewards are learned here;
        give its result to :meth:`finish_fit`.
        """
        self._store_waiting()
        self._refit = Refit(self.weighting.next_block(), len(self._unsummed))
        return self.weighting.begin_fit(self._refit)

    def finish_fit(self, fitted: Fitted) -> bool:
        """Go on from a fit; returns False if it is of no use: all was fitted anew since."""
        if self._refit is None or fitted.refit is not self._refit:
            return False
        self._refit.fitted = fitted
        return self._go_on_from_fit(None)

    def _go_on_from_fit(self, limit: int | None) -> bool:
        """Repeat steps on the result of a fit, and go on from it once all of them are.

        Args:
            limit: how many steps, at most; None: all.
        """
        refit = self._refit
        assert refit is not None
        assert refit.fitted is not None
        if not refit.repeat(limit):  # the sums say what a step cannot
            self._refit = None
            return False
        if not refit.steps or refit.fitted.model is None:
            self._store_waiting()  # what is new has to be added to the sums of the fit, too
            self._refit = None
            # The two know each other: together they would stay until the next garbage collection.
            fitted, refit.fitted = refit.fitted, None
            self.weighting.finish_fit(fitted)
            self._compact()
        return True

    def _collect(self, task: BackgroundTask) -> None:
        """Take the result of a thread, once it has one."""
        if self.is_bulk or not task.is_done:
            return
        self._task = None
        if task.error is not None:
            self._refit = None
            self.weighting.put_off_fit()
            message = f"a fit failed ({type(task.error).__name__}: {task.error}). The bandit goes"
            message += " on by single steps, and tries again after further rewards"
            warnings.warn(message, FitWarning, stacklevel=2)
        elif isinstance(task.result, Fitted) and task.result.refit is self._refit:
            self._refit.fitted = task.result

    def renew(self) -> None:
        """Make the roots anew from the sums."""
        if self.weighting.sums_late:
            self._refit = None  # its sums would be of now
        self.fold_in()
        self._compact()
        if not self.is_bulk:
            self.weighting.renew()

    def fold_in(self) -> None:
        """Add what waits to the sums and the rows."""
        self._store_waiting()
        self.sum_up(len(self._unsummed))

    def _keep_up(self, waiting: int) -> None:
        """Make the roots anew after many steps; where fits do, add many rows to the sums."""
        if not self.weighting.sums_late:
            if waiting >= self._limit:
                self.renew()
        elif waiting >= self._most_waiting:
            self._store_waiting()
            self._compact()
            if not self._background:
                self.sum_up(len(self._unsummed))
            elif self._task is None and self._refit is None:
                self._task = BackgroundTask(partial(self.sum_up, len(self._unsummed)))

    def _store_waiting(self) -> None:
        """Add what waits to the rows; the sums may wait."""
        waiting = self._waiting
        if not waiting.is_empty:
            waiting.pending = self.model.pending - self.weighting.held.count
            self._waiting = Waiting(len(self.observations))
            for store, arrived in zip(self.observations, waiting.came, strict=True):
                if arrived.rows:
                    store.extend(np.array(arrived.rows), arrived.rewards)
            self._unsummed.append(waiting)
            if not self.weighting.sums_late:
                self.sum_up(len(self._unsummed))

    def sum_up(self, count: int) -> None:
        """Add the first of what is stored and not in the sums yet; in any thread.

        Args:
            count: how many times something was stored.
        """
        with self.summing:
            for _ in range(min(count, len(self._unsummed))):
                waiting, refit = self._unsummed.popleft(), self._refit
                self.weighting.take(waiting)
                if refit is not None and refit.before > 0:
                    refit.before -= 1
                elif refit is not None:
                    refit.since.append(waiting)

    def _compact(self) -> None:
        """Freeze the oldest rows where there are too many, and let go of what nobody asks for."""
        freezer = self._freezer
        if not self.weighting.adds or self._refit is not None or not freezer.is_due:
            return  # a fit beside the fold still needs the rows that have come since
        self.fold_in()
        if freezer.is_full:
            if self.is_bulk:  # the model stands still, and the estimate of now is another
                self._look_for_estimate()
            freezer.freeze(self.model.theta, half=self.is_bulk)
        freezer.drop()

    def _look_for_estimate(self) -> None:
        """Have θ̂ of now in the model, to freeze rows at."""
        now = self._fitted_once()
        self.weighting.prior, self.model.theta = now.prior, now.mean

    def _fitted_once(self) -> Estimate:
        family, prior, start = self.policy.family, self.weighting.prior, self.model.theta
        return Laplace().fit(self.observed, family=family, prior=prior, start=start, polish=False)
