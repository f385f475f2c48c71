"""The learner: maintains the model of a policy as decisions are made and rewards arrive.

The learner receives each decision when it is made and each reward when it arrives. A weighting
(:mod:`~belated.fold.weighting`) defines how much decisions and rewards count depending on their
age. It also updates the model, either immediately with a single step or, under ``ConversionsOnly``,
at the end of the record. The underlying sums are updated in batches, with one BLAS call for all
rows of a batch, and the roots are recomputed from the sums. When the estimator requires it, a fit
of all observations, or of those in one block of coefficients, replaces θ̂ and the weights. Long fits
run in a thread.
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

#: Number of steps replayed per record on the result of a fit; each record causes fewer new steps.
REPEATED = 4
#: Maximum total size, in numbers, of rows that have not been added to the sums.
WAITING = 1 << 18


class Learner:
    """Maintains the model of a policy.

    The learner keeps references to the rows it receives, so callers must not modify rows
    afterwards. Rewards are stored by partition and identified by the handle that :meth:`learn`
    returns. Times are in microseconds since 1970: ``began`` is when a decision took effect, and
    ``recorded`` is the timestamp of the record being folded.

    Args:
        policy: the policy whose model is trained.
        rewards: what a missing reward means; None if every reward is reported.
        partitions: number of partitions of the journal.
        kernels: kernels to use instead of the fastest available.
        tuning: internal sizes.
        background: whether long fits run in a separate thread.

    Attributes:
        now: the timestamp of the latest record.
        defers: whether the caller runs due fits with :meth:`begin_fit`, as the service does. Under
            ``ConversionsOnly``, updates are then also deferred until the model is exported.
        is_bulk: whether updates of the model are suspended; see :meth:`bulk`.
        outstanding: function that returns all pending decisions, by partition.
        summing: lock held while sums are changed, including by a background fit.

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
        self._next_handle = [0] * partitions
        self._refit: Refit | None = None
        self.weighting = kind(self, rewards)

    # --- decisions -------------------------------------------------------------------------------

    def add_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """Add a new decision with a pending reward."""
        weighting = self.weighting
        self.now = max(self.now, began)
        if weighting.gram:
            weight = 1.0
        self._count_pending(x, weight)
        added = self._waiting.added
        added.append(x, 1.0 if weighting.counts_rows else weight, began)
        self._keep_up(len(added.rows))

    def restore_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """Make a decision pending again."""
        self.add_pending(x, weight, began)
        self.model.decisions -= 1

    def remove_pending(self, x: Vector, weight: float, began: int = 0) -> None:
        """End the pending state of a decision that gets no reward."""
        weighting = self.weighting
        if weighting.gram:
            weight = 1.0
        removed = self._waiting.removed
        removed.append(x, 1.0 if weighting.counts_rows else weight, began)
        if not self._discount_pending(x, weight):
            self.renew()
        else:
            self._keep_up(len(removed.rows))

    def hold(self, x: Vector, weight: float) -> None:
        """Count a decision that has not been folded yet as pending."""
        self._hold(x, weight, 1)
        self._count_pending(x, 1.0 if self.weighting.gram else weight)

    def release(self, x: Vector, weight: float) -> None:
        """Undo :meth:`hold` for a decision that was folded or not recorded."""
        self._hold(x, weight, -1)
        self.model.decisions -= 1
        if not self._discount_pending(x, 1.0 if self.weighting.gram else weight):
            self.renew()

    def _hold(self, x: Vector, weight: float, sign: int) -> None:
        weighting = self.weighting
        weight = 1.0 if weighting.counts_rows else weight
        information = Information.of(x[None, :], [weight], self.policy.shape)
        if sign > 0:
            weighting.held = weighting.held + information
        else:
            weighting.held = weighting.held - information

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
        """Stop counting a pending decision; return False if the roots must be recomputed."""
        share = self.weighting.share_of_pending
        if self.is_bulk or share == 0.0:
            self.model.pending -= 1
            return True
        succeeded: bool = self.step("remove_pending", x, share * weight)
        return succeeded

    def step(
        self, name: str, x: Vector | Row, *arguments: float, again: tuple[float, ...] = ()
    ) -> Any:
        """Update the model by one step, and record the step for replay if a fit is in progress.

        Args:
            name: name of the model's method.
            x: the row.
            arguments: further arguments of the method.
            again: further arguments for the replay, if they are different.
        """
        result = getattr(self.model, name)(x, *arguments)
        if self._refit is not None:
            self._refit.note(name, x, again or arguments)
        return result

    def note(self, change: Callable[[], None]) -> None:
        """Record a change of the sums, to apply it to the result of a fit in progress."""
        if self._refit is not None:
            self._refit.changes.append(change)

    @property
    def data_under_fit(self) -> object:
        """The data of a fit in progress; None if there is none."""
        return None if self._refit is None else self._refit.data

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Add many decisions with pending rewards, within :meth:`bulk`."""
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
        """Learn from the reward of a pending decision.

        Args:
            x: the row of the decision.
            y: the reward.
            weight: the weight of the decision while it was pending.
            began: when the decision took effect.
            recorded: when the reward was recorded.
            partition: the partition of the decision.
            predicted: the means predicted for the decision by models with several half-lives.

        Returns:
            A handle for revising or retracting the reward.
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
        arrived, handle = self._waiting.arrived[partition], self._next_handle[partition]
        arrived.append(x, 1.0 if weighting.counts_rows else weight, began)
        arrived.rewards.append(y)
        arrived.after.append(after)
        self._next_handle[partition] = handle + 1
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
        added: tuple[Row, Vector, NDArray[np.int64]],
        arrived: tuple[Row, Vector, NDArray[np.int64]],
        rewards: tuple[Vector, NDArray[np.int64]],
        old: NDArray[np.bool_],
        partition: int,
    ) -> None:
        """Add many decisions and learn from many rewards, within :meth:`bulk`.

        Args:
            decisions: number of new decisions.
            added: rows, weights and times of the new decisions with pending rewards.
            arrived: rows, weights and times of the decisions whose rewards have arrived.
            rewards: the rewards that have arrived, and when they were recorded.
            old: whether each decision with an arrived reward was already pending.
            partition: the partition of the decisions.
        """
        assert self.is_bulk
        (rows, weights, began), (y, recorded) = arrived, rewards
        ended = rows[old], weights[old], began[old]
        pages = self._waiting.pages
        for (pending_rows, pending_weights, times), sign in ((added, 1.0), (ended, -1.0)):
            if len(pending_weights):
                pages.append(pending_rows, sign * self.weighting.in_sums(pending_weights), times)
        self.model.decisions += decisions
        self.model.pending += decisions - len(y)
        self.model.n += len(y)
        if len(pages) >= self._limit or self._waiting.arrived[partition].rows:
            self.fold_in()  # earlier rewards must be stored first, in order of their handles
        if len(y):
            self.now = max(self.now, int(recorded[-1]))
            self.weighting.learned_page(rows, y, recorded)
            self.observations[partition].extend(rows, y)
            self._next_handle[partition] += len(y)
            if self.weighting.keeps_times:
                self.times[partition].extend(began, np.where(y != 0.0, recorded, SILENT))
        self._compact()

    def revise(self, handle: int, y: float, recorded: int = 0, partition: int = 0) -> None:
        """Change a reward."""
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
        """Remove a reward without making its decision pending again; return its row."""
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
        """Change the time at which a rewarded decision took effect."""
        self.fold_in()
        self.weighting.restart(handle, began, partition)

    def forget(self, handle: int, partition: int = 0) -> None:
        """Mark a reward as final: it will never be revised or retracted."""
        if self.weighting.adds:
            self._freezer.forget(handle, partition)

    def finish(self, recorded: int) -> None:
        """Finish a record, after all of its changes have been passed on."""
        self.now = max(self.now, recorded)
        self.weighting.finish(recorded)
        if self._task is not None:
            self._collect(self._task)
        elif self._refit is not None and self._refit.fitted is not None:
            self._go_on_from_fit(REPEATED)

    # --- observations ----------------------------------------------------------------------------

    @property
    def observed(self) -> Seen:
        """The observations of all partitions."""
        self._store_waiting()
        return self.observations[0] if len(self.observations) == 1 else Joined(self.observations)

    def next_handle(self, partition: int) -> int:
        """Return the handle that a partition's next reward will have."""
        return self._next_handle[partition]

    def rows(self, partition: int, handles: NDArray[np.int64]) -> Row:
        """Return the rows of the rewards with these handles."""
        waiting = self._waiting.arrived[partition].rows
        first = self._next_handle[partition] - len(waiting)
        rows = np.empty((len(handles), self.policy.row_width), dtype=np.float32)
        stored = handles < first
        rows[stored] = self.observations[partition].rows(handles[stored])
        for i in np.flatnonzero(~stored):
            rows[i] = waiting[handles[i] - first]
        return rows

    def pack(self, partition: int) -> dict[str, bytes]:
        """Serialize the observations of a partition and the starting point of the next fit."""
        self._store_waiting()
        pieces = self.observations[partition].pack() | {"theta": self.model.theta.tobytes()}
        if self.weighting.keeps_times:
            pieces |= self.times[partition].pack() | {"learned until": self.now.to_bytes(8)}
        return pieces | self.weighting.pack(partition)

    def unpack(
        self, partition: int, pieces: dict[str, bytes], remembered: NDArray[np.int64]
    ) -> None:
        """Restore the result of :meth:`pack`, within :meth:`bulk`.

        Args:
            partition: the partition.
            pieces: the result of :meth:`pack`.
            remembered: the handles of rewards that may still be revised or retracted.
        """
        store = self.observations[partition]
        store.unpack(pieces)
        store.forget_others(remembered)
        self._next_handle[partition] = store.next_handle
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
        """Make many changes without updating the model, then fit the model at the end."""
        self.is_bulk = True
        try:
            yield
        except BelatedError:  # unlike after other exceptions, earlier changes are complete
            self._end_bulk()
            raise
        self._end_bulk()

    def _end_bulk(self) -> None:
        self.is_bulk = False
        self.weighting.catch_up()

    def refresh(self) -> None:
        """Bring the model up to date, even within :meth:`bulk`."""
        if self.is_bulk:
            self._end_bulk()
            self.is_bulk = True

    @property
    def estimate(self) -> Estimate:
        """A converged fit of all observations.

        The fit depends only on the set of rewards while all rows are stored exactly. The
        contribution of frozen rows also depends on the estimate at which they were frozen.
        """
        self._store_waiting()
        data, start = self.weighting.data(), self.model.theta
        return self.weighting.fit(data, self.policy.start, start, polish=True)

    def fit(self) -> None:
        """Fit all observations, and continue from the result."""
        self._refit = None  # discard a fit in progress
        self.fold_in()
        weighting, data = self.weighting, self.weighting.data()
        estimate = weighting.fit(data, weighting.prior, self.model.theta, polish=False)
        weighting.go_on_from(estimate, data)

    def fit_is_due(self) -> bool:
        """Return whether there are enough new observations for a fit."""
        return self._refit is None and self.weighting.is_due

    @property
    def is_fitting(self) -> bool:
        """Whether a fit is in progress, or steps are being replayed on its result."""
        return self._refit is not None

    @property
    def is_busy(self) -> bool:
        """Whether a thread is working on the sums or on a fit."""
        return self._task is not None

    def refit(self) -> None:
        """Run the fit that is due, in a thread if threads are allowed and the fit is expensive."""
        if self._background and self.weighting.fit_cost > CHEAP:
            if self._task is None and self._refit is None:
                self._task = BackgroundTask(self.begin_fit())
        elif self.weighting.has_due_block:
            while self.fit_is_due():
                self.finish_fit(self.begin_fit()())
        else:
            self.fit()

    def begin_fit(self) -> Callable[[], Fitted]:
        """Begin a fit of the observations that have arrived so far.

        Returns:
            A function that runs the fit. It may be called in another thread while the learner
            receives further rewards. Pass its result to :meth:`finish_fit`.
        """
        self._store_waiting()
        self._refit = Refit(self.weighting.next_block(), len(self._unsummed))
        return self.weighting.begin_fit(self._refit)

    def finish_fit(self, fitted: Fitted) -> bool:
        """Continue from the result of a fit; return False if the fit has become obsolete."""
        if self._refit is None or fitted.refit is not self._refit:
            return False
        self._refit.fitted = fitted
        return self._go_on_from_fit(None)

    def _go_on_from_fit(self, limit: int | None) -> bool:
        """Replay steps on the result of a fit, and continue from it once all steps are replayed.

        Args:
            limit: maximum number of steps to replay; None for all.
        """
        refit = self._refit
        assert refit is not None
        assert refit.fitted is not None
        if not refit.repeat(limit):  # a step failed: discard the fit
            self._refit = None
            return False
        if not refit.steps or refit.fitted.model is None:
            self._store_waiting()  # the sums of the fit also need the latest rows
            self._refit = None
            # Break the reference cycle, so that both objects are freed without garbage collection.
            fitted, refit.fitted = refit.fitted, None
            self.weighting.finish_fit(fitted)
            self._compact()
        return True

    def _collect(self, task: BackgroundTask) -> None:
        """Use the result of a background task if the task has finished."""
        if self.is_bulk or not task.is_done:
            return
        self._task = None
        if task.error is not None:
            self._refit = None
            self.weighting.put_off_fit()
            message = (
                f"a fit failed ({type(task.error).__name__}: {task.error}). The bandit continues"
                " with incremental updates, and tries again after further rewards"
            )
            warnings.warn(message, FitWarning, stacklevel=2)
        elif isinstance(task.result, Fitted) and task.result.refit is self._refit:
            self._refit.fitted = task.result

    def renew(self) -> None:
        """Recompute the roots from the sums."""
        if self.weighting.sums_late:
            self._refit = None  # discard a fit in progress, because its sums are updated now
        self.fold_in()
        self._compact()
        if not self.is_bulk:
            self.weighting.renew()

    def fold_in(self) -> None:
        """Add all pending changes to the stored rows and the sums."""
        self._store_waiting()
        self.sum_up(len(self._unsummed))

    def _keep_up(self, waiting: int) -> None:
        """After many changes, recompute the roots, or only update the sums if fits do this."""
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
        """Add all pending changes to the stored rows; the sums may be updated later."""
        waiting = self._waiting
        if not waiting.is_empty:
            waiting.pending = self.model.pending - self.weighting.held.count
            self._waiting = Waiting(len(self.observations))
            for store, arrived in zip(self.observations, waiting.arrived, strict=True):
                if arrived.rows:
                    store.extend(np.array(arrived.rows), arrived.rewards)
            self._unsummed.append(waiting)
            if not self.weighting.sums_late:
                self.sum_up(len(self._unsummed))

    def sum_up(self, count: int) -> None:
        """Add stored batches of changes to the sums; can be called from any thread.

        Args:
            count: maximum number of batches to add.
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
        """Freeze the oldest rows if there are too many, and drop rows that are no longer needed."""
        freezer = self._freezer
        if not self.weighting.adds or self._refit is not None or not freezer.is_due:
            return  # a fit in progress still needs the rows that have arrived since
        self.fold_in()
        if freezer.is_full:
            if self.is_bulk:  # the model is not updated in bulk mode
                self._look_for_estimate()
            freezer.freeze(self.model.theta, half=self.is_bulk)
        freezer.drop()

    def _look_for_estimate(self) -> None:
        """Update the model's θ̂, which is the point at which rows are frozen."""
        estimate = self._fitted_once()
        self.weighting.prior, self.model.theta = estimate.prior, estimate.mean

    def _fitted_once(self) -> Estimate:
        family, prior, start = self.policy.family, self.weighting.prior, self.model.theta
        return Laplace().fit(self.observed, family=family, prior=prior, start=start, polish=False)
