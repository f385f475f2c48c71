"""The weighting for data in which only conversions are reported.

Every decision counts from the start, weighted by the share of conversions expected by its age.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import ConversionsOnly, Rewards
from belated.fold.refit import CHEAP, Fitted, Refit
from belated.fold.times import REMOVED, SILENT, Times
from belated.fold.weighting.age_blocks import TICK, AgeBlocks, Thinned as ThinnedSums
from belated.fold.weighting.constant import Constant, Outstanding
from belated.fold.weighting.half_life import REACH, USED, shares_at
from belated.model.blocks import add_gram, no_sum, predictors, product, root_of, solve
from belated.model.estimators import Estimate
from belated.model.estimators.conversion_law import ConversionLaw, Conversions
from belated.model.estimators.thinned import (
    AgedDecisions,
    DecidedRows,
    Thinned,
    ThinnedEstimate,
    prior_precision,
    thinned_weight,
)
from belated.model.priors import Prior
from belated.model.statistics import Information, Observations

if TYPE_CHECKING:
    from belated.fold.learner import Learner
    from belated.fold.waiting import Waiting


Delivery = Literal["auto", "batches", "single"]

#: Pauses as fractions of the window. A pause longer than PAUSE separates two deliveries; after a
#: pause longer than QUIET, a delivery is complete.
PAUSE, QUIET = 1 / 50, 1 / 500
#: Conversions arrive in batches if there are at least LEAST deliveries with at least SIZE
#: conversions on average, which take up at most the fraction SHARE of the time.
LEAST, SIZE, SHARE = 2, 10, 0.05
#: How long to wait for a second delivery, relative to the period in which the decisions of the
#: first delivery were made.
PATIENCE = 2.0


class Deliveries(NamedTuple):
    """The deliveries in a list of conversions, in order.

    Attributes:
        starts: the time of the first conversion of each delivery.
        ends: the time of the last conversion of each delivery.
        sizes: number of conversions in each delivery.
        made_in: length of the period in which the decisions of the first delivery were made.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    made_in: int

    @property
    def are_batches(self) -> bool:
        """Whether conversions arrive in batches.

        If conversions arrived one by one, large groups between pauses would take up much of the
        time.
        """
        if len(self.sizes) < LEAST or self.sizes.mean() < SIZE:
            return False
        return self._duration <= SHARE * int(self.ends[-1] - self.starts[0])

    def is_first_batch(self, now: int) -> bool:
        """Return whether the only delivery so far looks like the first of several batches.

        If conversions arrived one by one, the first ones would take about as long to arrive as
        their decisions took to be made.
        """
        if len(self.sizes) != 1 or self.sizes[0] < SIZE or not self.made_in:
            return False
        is_awaited = now - int(self.ends[0]) <= PATIENCE * self.made_in
        return is_awaited and self._duration <= SHARE * self.made_in

    @property
    def _duration(self) -> int:
        return int((self.ends - self.starts).sum())


def deliveries(
    reported: NDArray[np.int64], window: int, began: NDArray[np.int64] | None = None
) -> Deliveries:
    """Group conversions into deliveries.

    Args:
        reported: when each conversion was reported, in order.
        window: the window, in the same unit.
        began: when the decision of each conversion took effect; required to recognize a batch after
            a single delivery.

    >>> days = np.repeat([100, 200, 300], 20)
    >>> three = deliveries(days, 1_000)
    >>> three.ends, three.are_batches
    (array([100, 200, 300]), True)
    >>> deliveries(np.arange(0, 1_000, 7), 1_000).are_batches
    False
    >>> first = deliveries(days[:20], 1_000, began=np.arange(0, 100, 5))
    >>> first.is_first_batch(now=120), first.is_first_batch(now=400)  # no second one has arrived
    (True, False)
    """
    if not len(reported):
        return Deliveries(reported, reported, reported, 0)
    cuts = np.flatnonzero(np.diff(reported) > PAUSE * window) + 1
    first, stop = np.append(0, cuts), np.append(cuts, len(reported))
    made_in = 0 if began is None else int(np.ptp(began[: stop[0]]))
    return Deliveries(reported[first], reported[stop - 1], stop - first, made_in)


class AgeClock:
    """The time up to which ages are measured: now or, with batches, the last complete delivery.

    Args:
        window: the window in microseconds.
        delivery: how conversions arrive, "single" or in "batches"; "auto" detects which.

    Attributes:
        now: the timestamp of the latest record.
        in_batches: whether conversions appear to arrive in batches.

    >>> clock = AgeClock(1_000, "batches")
    >>> clock.now = 250
    >>> batches = clock.look(np.repeat([100, 200], 20), np.arange(40))
    >>> clock.until
    200
    """

    def __init__(self, window: int, delivery: Delivery) -> None:
        self.now = 0
        self.in_batches = delivery == "batches"
        self._window, self._delivery = window, delivery
        self._delivered = 0
        self._last_reported = SILENT

    @property
    def until(self) -> int:
        """The time up to which ages are measured."""
        return self._delivered if self.in_batches else self.now

    @property
    def has_delivered(self) -> bool:
        """Whether there is a complete delivery that is not yet included in ages."""
        return self.in_batches and self._last_reported > self._delivered and self._is_quiet

    @property
    def _is_quiet(self) -> bool:
        return self.now - self._last_reported > QUIET * self._window

    def told(self, at: int) -> None:
        """Record the time at which a conversion was reported."""
        self._last_reported = max(self._last_reported, at)

    def look(self, reported: NDArray[np.int64], began: NDArray[np.int64]) -> Deliveries | None:
        """Detect deliveries; return them if conversions arrive in batches.

        Args:
            reported: when each conversion was reported, in order.
            began: when the decision of each conversion took effect.
        """
        batches = deliveries(reported, self._window, began)
        if self._delivery == "auto":
            self.in_batches = batches.are_batches or batches.is_first_batch(self.now)
        if not self.in_batches:
            return None
        ends = batches.ends.tolist()
        self._last_reported = ends[-1] if ends else SILENT
        complete = ends if self._is_quiet else ends[:-1]
        self._delivered = complete[-1] if complete else 0
        return batches


class Fading(NamedTuple):
    """The weights of decisions under a half-life.

    Attributes:
        now: the current time.
        half_life: the half-life, in the same unit.
    """

    now: int
    half_life: int

    @property
    def oldest(self) -> int:
        """The time at or before which decisions no longer count."""
        return self.now - REACH * self.half_life


def conversions_in(
    times: Sequence[Times],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return when conversions were reported, in order, and when their decisions took effect."""
    arrived = np.concatenate([column.came for column in times])
    began = np.concatenate([column.began for column in times])
    arrived, began = arrived[arrived != SILENT], began[arrived != SILENT]
    order = np.lexsort((began, arrived))
    return arrived[order], began[order]


def decided(
    learned: Sequence[tuple[Observations, Times]],
    pending: Sequence[Outstanding],
    window: int,
    until: int,
    batches: Deliveries | None,
    fading: Fading | None = None,
) -> AgedDecisions:
    """Return all decisions with their ages and conversions.

    Args:
        learned: decisions that have converted or whose window has ended, by partition.
        pending: all other decisions, by partition.
        window: the window in microseconds.
        until: the time up to which ages are measured.
        batches: the deliveries, if conversions arrive in batches; conversions reported after
            ``until`` are then ignored.
        fading: the weights of decisions; None if all decisions have full weight.
    """
    parts, converted_began, converted_came = [], [], []
    for store, times in learned:
        start = 0 if fading is None else times.first_after(fading.oldest)
        remains = times.began[start:] != REMOVED
        began, arrived = times.began[start:][remains], times.came[start:][remains]
        rows, y = store.since(start)
        if batches is not None:
            y = np.where(arrived <= until, y, 0.0)
        in_window = (arrived != SILENT) & (arrived <= until) & (arrived - began <= window)
        parts.append(_aged(began, rows, y, window, until, fading))
        converted_began.append(began[in_window])
        converted_came.append(arrived[in_window])
    for began, rows, _ in pending:
        parts.append(_aged(began, rows, np.zeros(len(rows)), window, until, fading))
    shape = learned[0][0].shape
    times_of_conversions = np.concatenate(converted_began), np.concatenate(converted_came)
    conversions = _conversions(*times_of_conversions, window, until, batches, fading)
    return AgedDecisions(shape, parts, conversions, TICK / window)


def _aged(
    began: NDArray[np.int64], rows: Row, y: Vector, window: int, until: int, fading: Fading | None
) -> DecidedRows:
    if fading is None:
        return DecidedRows(rows, y, (until - began + TICK) / window)
    recent = began > fading.oldest
    if not recent.all():
        began, rows, y = began[recent], rows[recent], y[recent]
    return DecidedRows(rows, y, (until - began + TICK) / window, shares_at(began, *fading))


def _conversions(
    began: NDArray[np.int64],
    came: NDArray[np.int64],
    window: int,
    until: int,
    batches: Deliveries | None,
    fading: Fading | None,
) -> Conversions:
    if fading is not None:
        recent = began > fading.oldest
        began, came = began[recent], came[recent]
    weight = None if fading is None else shares_at(began, *fading)
    delay = (np.maximum(came - began, 0) + TICK) / window
    age = np.minimum((until - began + TICK) / window, 1.0)
    if batches is None:
        return Conversions(delay, np.zeros(len(delay)), age, weight)
    # The conversion happened after the previous delivery.
    batch = np.searchsorted(batches.starts, came, side="right") - 1
    before = np.where(batch > 0, batches.ends[batch - 1], 0)
    after = np.clip((before - began) / window, 0.0, delay)
    return Conversions(after, delay - after, age, weight)


#: Maximum norm of a step from the last fit.
LONGEST = 2.0
#: Relative growth in decisions after which θ̂ takes a step even if nothing was reported, relative
#: growth after which θ̂ is fitted again, and minimum number of decisions between two fits.
STEP, GROWTH, SOONEST = 0.01, 0.05, 20
#: Without sums by age, a fit requires at least one new decision per this many coefficients.
COEFFICIENTS = 16
#: The cost of a fit in addition to matrix operations, in equivalent floating-point operations: for
#: the delay distribution, and for the likelihood of each decision.
LAW, LIKELIHOOD = 1e6, 300
#: With a half-life, fits are scheduled as if at least this many conversions counted.
MANY = 30


class ExpectedConversions(Constant):
    """Weights each decision by the share of conversions expected by its age.

    Ages are measured up to the latest record, or up to the last delivery if conversions arrive in
    batches. With a half-life h, a decision, its conversion and its information about delays have
    the weight 2^(-age/h) at the latest record. The model is updated at the end of a record (see
    :meth:`finish`).

    Between two fits, θ̂ is updated from sums over decisions by age, in a single step that solves for
    all coefficients. If there are too many coefficients for this, no sums are maintained: each
    conversion updates θ̂ separately, and missing conversions only count in the next fit.

    Attributes:
        window: the window of the rewards, in microseconds.
        half_life: the half-life of the policy, in microseconds, if it has one.
        converted: number of conversions received.
        sums_by_age: whether sums over decisions by age are maintained.

    >>> from belated import Bernoulli, DelayedUCB
    >>> from belated.fold.learner import Learner
    >>> policy = DelayedUCB(1, Bernoulli(), ridge=1.0)
    >>> learner = Learner(policy, ConversionsOnly("1h"))
    >>> x = np.array([1.0])
    >>> for time in (0, 10):
    ...     learner.add_pending(x, 0.25, time)
    ...     learner.finish(time)
    >>> handle = learner.learn(x, 1.0, 0.25, began=10, recorded=500)
    >>> learner.finish(500)
    >>> learner.model.n, learner.model.pending
    (1, 1)
    """

    keeps_times: ClassVar[bool] = True
    adds: ClassVar[bool] = False

    def __init__(self, learner: Learner, rewards: Rewards | None = None) -> None:
        assert isinstance(rewards, ConversionsOnly)
        assert rewards.window_us is not None  # checked by ConversionsOnly
        policy = learner.policy
        self.window, self.half_life = rewards.window_us, policy.half_life_us
        self.converted = 0
        estimator: object = policy.estimator
        self._estimator = estimator if isinstance(estimator, Thinned) else Thinned()
        nothing = AgedDecisions(policy.shape, (), Conversions.none(), TICK / self.window)
        self._clock = AgeClock(self.window, rewards.delivery)
        self.sums_by_age = math.prod(policy.shape) * policy.shape[-1] ** 2 <= CHEAP
        self._step_is_due = self._fit_is_due = False
        # Number of decisions at which the next step is due, and at which the next fit is due.
        self._step_due, self._fit_due = 1.0, float(SOONEST)
        # Effective number of decisions and conversions in the last fit; None if none decayed.
        self._faded: tuple[float, int] | None = None
        self._fitted_at = 0
        super().__init__(learner)
        self._blocks = self._blocks_at(policy.start.mean, self._estimator.law(nothing), 0)
        self.sums_late = not self.sums_by_age
        self.observed, self.counted = None, no_sum(policy.shape)
        self.pending = Information.zero(policy.shape)
        learner.model.effective_n = 0.0

    # --- changes -------------------------------------------------------------------------------

    def learn(self, x: Vector, y: float, weight: float, began: int) -> float:
        """Learn from a conversion or the end of a window; with sums, update the model later."""
        self.learner.model.pending -= 1
        self.learner.model.n += 1
        if y and not self.sums_by_age:
            self._move(began, x, 0.0, y)
        return 0.0

    def learned(self, x: Vector, y: float, handle: int, recorded: int, partition: int) -> None:
        """Handle a stored reward, whether or not in bulk mode."""
        if y:
            self._convert(1, recorded)

    def learned_page(self, rows: Row, y: Vector, recorded: NDArray[np.int64]) -> None:
        """Handle many stored rewards in bulk mode."""
        arrived = recorded[y != 0.0]
        if len(arrived):
            self._convert(len(arrived), int(arrived.max()))

    def _convert(self, count: int, recorded: int) -> None:
        """Add ``count`` conversions, and schedule a fit or a step."""
        self.converted += count
        self._clock.told(recorded)
        if count < 0 or (self.converted >= self.next_fit and not self._clock.in_batches):
            self._fit_is_due = True
        elif not self._clock.in_batches:
            self._step_is_due = True

    def revise(self, handle: int, row: Row, before: float, y: float, partition: int) -> None:
        """Update the sums or the model after a reward changed from ``before`` to ``y``."""
        times = self.learner.times[partition]
        began = int(times.began[handle])
        if self.sums_by_age:
            self._change(began, row, y - before)
        elif not self.learner.is_bulk:
            self._move(began, row, before, y)
        self._convert(bool(y) - bool(before), int(times.came[handle]))

    def retract(self, handle: int, x: Vector, y: float, partition: int) -> None:
        """Update the sums after a reward and its decision were removed."""
        times = self.learner.times[partition]
        began = int(times.began[handle])
        times.began[handle], times.came[handle] = REMOVED, SILENT
        self.learner.model.n -= 1
        if self.sums_by_age:
            self._change(began, x, -y, removed=True)
        else:
            self._fit_is_due = True
        if y:
            self._convert(-1, self.learner.now)

    def _move(self, began: int, x: Vector | Row, before: float, y: float) -> None:
        """Update θ̂ after a reward changed from ``before`` to ``y``, with ω from the last fit."""
        if not self._clock.in_batches:
            pulls = self._blocks.pulls(np.array([began] * 2), np.array([x] * 2), [before, y])
            self.learner.step("revise", x, *pulls.tolist())

    def _change(self, began: int, x: Vector | Row, change: float, removed: bool = False) -> None:
        """Change the value of a decision in the sums, including the sums of a fit in progress."""
        if not self.learner.is_bulk:
            self.learner.note(partial(self._apply, began, x, change, removed))
            self._apply(began, x, change, removed)

    def _apply(self, began: int, x: Vector | Row, change: float, removed: bool) -> None:
        self._blocks.fade(self.learner.now)
        if removed and not self._blocks.remove(began, x):
            self._fit_is_due = True
        if change:
            self._blocks.convert(np.array([began]), x[None, :], np.array([change]))

    def restart(self, handle: int, began: int, partition: int) -> None:
        """Schedule a fit after the time of an observed decision has changed."""
        self.learner.times[partition].restart(handle, began)
        self._fit_is_due = True

    def take(self, waiting: Waiting) -> None:
        """Add pending changes to the sums by age, except in bulk mode, which ends with a fit."""
        if self.learner.is_bulk or not self.sums_by_age:
            return
        blocks, added = self._blocks, waiting.added
        blocks.fade(self.learner.now)
        if added.rows:
            blocks.add(np.array(added.began), np.array(added.rows), self._clock.until)
        for began, row in zip(waiting.removed.began, waiting.removed.rows, strict=True):
            self._apply(began, row, 0.0, True)
        for arrived in waiting.arrived:
            y = np.array(arrived.rewards)
            if y.any():
                blocks.convert(np.array(arrived.began), np.array(arrived.rows), y)

    def add_all_pending(self, rows: Matrix, weights: Vector) -> None:
        """Do nothing, because fits read pending decisions from the table."""

    # --- fits and steps ------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a fit is due that the caller must run in the background."""
        return self.learner.defers and self._fit_is_due

    @property
    def fit_cost(self) -> float:
        """Approximate number of floating-point operations of the fit that is due."""
        *blocks, size = self.policy.shape
        per_decision = size**2 + LIKELIHOOD
        return LAW + math.prod(blocks) * size**3 + self.learner.model.decisions * per_decision

    def finish(self, recorded: int) -> None:
        """Finish a record: run a fit or take a step if one is due."""
        learner, clock = self.learner, self._clock
        clock.now = learner.now
        decisions = learner.model.decisions
        if clock.has_delivered or self._has_faded or decisions >= self._fit_due:
            self._fit_is_due = True
        elif decisions >= self._step_due:
            self._step_is_due = True
        if learner.is_bulk or learner.defers:  # the model is not used before it is exported
            return
        if self._fit_is_due and not learner.is_fitting:
            learner.refit()
        elif self._step_is_due:
            self._step()

    def refresh(self) -> None:
        """Take a step if a step or a fit is due."""
        if self._step_is_due or self._fit_is_due:
            self._step()

    @property
    def _has_faded(self) -> bool:
        """Whether weights have decayed noticeably since the last fit."""
        if self.half_life is None:
            return False
        return self.learner.now - self._fitted_at >= USED * self.half_life

    def data(self, *, copy: bool = False) -> AgedDecisions:
        """Return all decisions with their ages and conversions."""
        return self._reader(copy)()

    def _reader(self, copy: bool) -> Callable[[], AgedDecisions]:
        """Return a function that collects all decisions; with ``copy``, any thread may call it."""
        learner, clock = self.learner, self._clock
        learner.fold_in()
        clock.now = learner.now
        batches = clock.look(*conversions_in(learner.times))
        learned = list(zip(learner.observations, learner.times, strict=True))
        if copy:
            learned = [
                (store + Observations(store.shape), times.copy()) for store, times in learned
            ]
        fading = None if self.half_life is None else Fading(learner.now, self.half_life)
        pending = learner.outstanding()
        return partial(decided, learned, pending, self.window, clock.until, batches, fading)

    def fit(self, data: Any, prior: Prior, start: Vector, polish: bool) -> Estimate:
        """Return an estimate; can be called from any thread."""
        family = self.policy.family
        estimate = self._estimator.fit(data, family=family, prior=prior, start=start, polish=polish)
        return replace(estimate, half_life_us=self.half_life)

    def begin_fit(self, refit: Refit) -> Callable[[], Fitted]:
        """Return a function that fits the current data; it can be called from any thread."""
        read, prior, start = self._reader(copy=True), self.prior, self.learner.model.theta.copy()
        now, until, information = self.learner.now, self._clock.until, self.held
        self._schedule()

        def fit() -> Fitted:
            data = read()
            estimate = self.fit(data, prior, start, polish=False)
            return self._fitted(refit, estimate, data, now, until, information)

        return fit

    def _fitted(
        self,
        refit: Refit,
        estimate: Estimate,
        data: object,
        now: int,
        until: int,
        held: Information,
    ) -> Fitted:
        """Compute the sums or the model from which to continue; can be called from any thread."""
        assert isinstance(estimate, ThinnedEstimate)
        assert isinstance(data, AgedDecisions)
        blocks, model = self._blocks_at(estimate.mean, estimate.law, until), None
        blocks.fade(now)
        if self.sums_by_age:
            blocks.add_all(data, until)
        else:
            counted = self._counted(data, estimate)
            explored = self._explored_with(counted, estimate.dispersion, held)
            model = self.learner.model.refitted(estimate, estimate.precision, explored)
        faded = None
        if self.half_life is not None:
            decisions = sum(float(part.counted(np.ones(len(part.y))).sum()) for part in data.parts)
            faded = decisions, round(data.conversions.counts.sum())
        return Fitted(refit, estimate, model, sums=blocks, faded=faded)

    def _blocks_at(self, theta: Vector, law: ConversionLaw, until: int) -> AgeBlocks:
        return AgeBlocks(self.window, self.policy.family, theta, law, until, self.half_life)

    def expand_at(self, theta: Vector, law: ConversionLaw) -> AgedDecisions:
        """Sum all decisions again, at this θ and delay distribution; return the decisions."""
        data = self.data()
        self._blocks = self._blocks_at(theta, law, self._clock.until)
        self._blocks.fade(self.learner.now)
        self._blocks.add_all(data, self._clock.until)
        return data

    def sums(self) -> tuple[Vector, ThinnedSums]:
        """Return Σ ω y x and the sums over all decisions, at the time of the latest record."""
        self._blocks.fade(self.learner.now)
        return self._blocks.converted, self._blocks.sums(self.learner.now)

    def go_on_from(self, estimate: Estimate, data: object) -> None:
        """Continue from a fit."""
        now, until, information = self.learner.now, self._clock.until, self.held
        self.finish_fit(self._fitted(Refit(), estimate, data, now, until, information))
        self._schedule()

    def finish_fit(self, fitted: Fitted) -> None:
        """Continue from a background fit, including all changes since it began."""
        estimate, refit, model = fitted.estimate, fitted.refit, self.learner.model
        assert isinstance(fitted.sums, AgeBlocks)
        self.prior, self._blocks, self._faded = estimate.prior, fitted.sums, fitted.faded
        if fitted.model is not None:
            model.replace(fitted.model, None)
            model.effective_n = estimate.effective_n
            return
        for waiting in refit.since:
            self.take(waiting)
        for change in refit.changes:
            change()
        model.restart(estimate.mean, estimate.dispersion)
        model.observed = root_of(estimate.precision)
        self._step(moves=bool(refit.since or refit.changes))

    def _schedule(self) -> None:
        """Schedule the next fit; called when a fit begins."""
        self._fit_is_due, self._fitted_at = False, self.learner.now
        decisions, n = self.learner.model.decisions, self.converted
        count = float(decisions)
        if self._faded is not None:  # growth is relative to effective numbers
            count, conversions = self._faded
            n = min(n, max(conversions, MANY))
        least = SOONEST if self.sums_by_age else max(SOONEST, self.policy.dim / COEFFICIENTS)
        self._fit_due = decisions + max(least, GROWTH * count)
        self.next_fit = self.converted - n + self._estimator.next_fit(n, self.policy.shape)

    def put_off_fit(self) -> None:
        """Do nothing, because the next fit was scheduled when the failed fit began."""

    def renew(self) -> None:
        """Take a step; without sums by age, schedule a fit."""
        self._fit_is_due |= not self.sums_by_age
        self._step()

    def _step(self, moves: bool = True) -> None:
        """Recompute the root of all decisions from the sums, and also θ̂ if ``moves`` is True."""
        self._step_is_due = False
        if not self.sums_by_age:
            return
        self.learner.fold_in()
        self._clock.now = self.learner.now
        self._blocks.fade(self.learner.now)
        model, family, phi = self.learner.model, self.policy.family, self.learner.model.dispersion
        sums = self._blocks.sums(self._clock.until)
        if moves and not self._clock.in_batches:
            prior = prior_precision(self.prior, family, phi)
            deviation = self._blocks.theta - self.prior.mean
            gradient = (self._blocks.converted - sums.mean) / phi - product(prior, deviation)
            step = solve(prior + sums.seen / phi, gradient)
            length = float(np.linalg.norm(step))
            model.theta = self._blocks.theta + min(1.0, LONGEST / (length or 1.0)) * step
        share = self.share_of_pending
        counted = share * sums.all + (1.0 - share) * sums.seen
        model.decided = root_of(self._explored_with(counted, phi, self.held))
        model.effective_n = sums.n
        count = float(model.decisions) if self.half_life is None else sums.decisions
        self._step_due = model.decisions + STEP * count + 1

    def _explored_with(self, counted: Matrix, dispersion: float, held: Information) -> Matrix:
        """Return the precision that includes all decisions, given their information for φ = 1."""
        total: Matrix = counted / dispersion
        total += prior_precision(self.policy.start, self.policy.family, dispersion)
        if held.count:
            share = self.share_of_pending / (dispersion if self.unscaled else 1.0)
            total += share * held.matrix
        return total

    def _counted(self, data: AgedDecisions, estimate: ThinnedEstimate) -> Matrix:
        """Return the information of all decisions, which :meth:`_step` would compute from sums."""
        share, family = self.share_of_pending, self.policy.family
        total = np.zeros(self.counted.shape)
        for part in data.parts:
            rows = part.rows.astype(np.float64)
            _, mean, slope = family.cumulant_mean_slope(predictors(rows, estimate.mean))
            seen = estimate.law.at(part.age)
            observed = seen * thinned_weight(family, seen, mean)
            add_gram(total, rows, part.counted(slope * (share + (1.0 - share) * observed)))
        return total

    def unpack(self, partition: int, pieces: dict[str, bytes]) -> None:
        """Restore the result of :meth:`pack`, in bulk mode."""
        arrived = self.learner.times[partition].came
        self.converted += int((arrived != SILENT).sum())
        self._clock.told(int(arrived.max(initial=SILENT)))
