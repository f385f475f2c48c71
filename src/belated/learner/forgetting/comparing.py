"""A learner that finds its half-life: the longest that predicts nearly as well as the best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belated.estimators import Estimate
from belated.inputs import Vector
from belated.kernels import Kernels
from belated.learner.forgetting.evidence import Evidence
from belated.learner.forgetting.learner import ForgettingLearner
from belated.learner.forgetting.rivals import Rivals
from belated.learner.forgetting.tracks import Track
from belated.policies.policy import Policy
from belated.tuning import USUAL, Tuning

#: The half-lives that are compared, in decisions, after the one that forgets nothing.
COMPARED = (2000, 500, 150)
#: The half-life of a reward as evidence, in decisions; doubled until it is the mean delay.
EVIDENCE = 300
#: Rewards after which it is looked which half-life is best; they are learned together.
TOGETHER = 16
#: A half-life must be at least this share of the mean delay: else all is forgotten as it comes.
LEAST_DELAY = 0.5


class ComparingLearner(ForgettingLearner):
    """Keeps the model of a policy with the half-life "auto", and beside it those of its rivals.

    Arguments and attributes are those of :class:`ForgettingLearner`.

    >>> from belated import Bernoulli, DelayedUCB
    >>> learner = ComparingLearner(DelayedUCB(1, Bernoulli(), half_life="auto"), interval=1e6)
    >>> [track.half_life for track in learner.tracks]
    [None, 2000000000, 500000000, 150000000]
    >>> learner.half_life is None  # until another predicts better, nothing is forgotten
    True
    """

    def __init__(
        self,
        policy: Policy,
        *,
        partitions: int = 1,
        kernels: Kernels | None = None,
        tuning: Tuning = USUAL,
        interval: float | None = None,
    ) -> None:
        self._told: list[tuple[Vector, float, int, Sequence[float]]] = []
        self._unknown = (np.nan,) * self.rivals
        self.evidence = Evidence(policy.family, self.rivals, 1)
        super().__init__(
            policy, partitions=partitions, kernels=kernels, tuning=tuning, interval=interval
        )
        self._rivals = Rivals(policy, self.tracks, self.model)
        self._rescale()

    def _tracks_of(self, policy: Policy, partitions: int) -> list[Track]:
        """All forget nothing until it is known how often decisions are made."""
        return [Track(policy, None, partitions) for _ in range(self.rivals)]

    @property
    def rivals(self) -> int:
        """Predictions that a decision has, to compare them."""
        return 1 + len(COMPARED)

    @property
    def scores(self) -> list[float]:
        """How well each half-life has predicted: log-likelihoods, but for a common constant."""
        self._learn_told()
        return self.evidence.scores

    # --- what it is told -----------------------------------------------------------------------

    def see(self, recorded: int) -> None:
        """A record is about to be folded; called before anything that it changes."""
        super().see(recorded)
        if self.pace.moved:
            self._rescale()
            if not self._bulk:
                self.fit()

    def _arrived(self, x: Vector, y: float, made: int, partition: int) -> None:
        """Keep what was predicted for a reward; now and then, look which half-life is best."""
        means = self._means if len(self._means) == len(self.tracks) else None
        self.arrivals[partition].append(made, y, means)
        self.pace.rewarded(self._stamp, max(0, self._stamp - made), partition)
        self._told.append((x, y, made, self._unknown if means is None else means))
        self.learned += 1
        if self.learned % TOGETHER == 0:
            self._learn_told()
            self._pick()
            if not self._bulk:
                self._fit_compared()

    def _learn_told(self) -> None:
        """Count what was predicted for the last rewards, and let all models learn these."""
        if not self._told:
            return
        rows, y, made, means = (np.array(column) for column in zip(*self._told, strict=True))
        self._told.clear()
        self.evidence.add(made, y, means)
        if not self._bulk:
            self._rivals.learn(rows, y, made)

    def _count_evidence(self, handle: int, partition: int, sign: float) -> None:
        """A reward is about to change, or has changed; the next fit of the rivals mends them."""
        self._learn_told()
        its, line = self.arrivals[partition], slice(handle, handle + 1)
        self.evidence.add(its.made[line], its.y[line], its.means[line], sign)

    # --- fits ----------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        self.pace.measure()  # partitions were read one after the other
        if self._is_new or self.pace.moved:
            self._rescale()
        self._learn_told()
        for n in range(len(self.tracks)):
            if n != self.picked:
                self._fit_rival(n)
        super()._catch_up()

    def _fit_compared(self) -> None:
        for n, track in enumerate(self.tracks):
            if n != self.picked and track.is_due(self.now, self.model.n):
                self._fit_rival(n)

    def _fit_rival(self, n: int) -> None:
        self._fold()
        self._learn_told()
        track = self.tracks[n]
        estimate = self._fit_of(self._data(track), track, self._rivals.start_of(n), False)
        self._rivals.go_on_from(n, estimate)
        track.prior = estimate.prior
        track.fitted_at, track.fitted_n = self.now, self.model.n

    def _go_on_from(self, estimate: Estimate) -> None:
        self._rivals.go_on_from(self.picked, estimate)
        super()._go_on_from(estimate)

    # --- which half-life -----------------------------------------------------------------------

    def _rescale(self) -> None:
        """Half-lives that are given in decisions are another time now; and all sums anew."""
        self._fold()
        self._learn_told()
        self.pace.moved = False
        interval = self.pace.interval
        for track, decisions in zip(self.tracks[1:], COMPARED, strict=True):
            track.half_life = None if interval is None else max(1, round(decisions * interval))
        self._sum_outstanding()
        self._weigh()

    def _weigh(self) -> None:
        """Weigh all evidence anew, by another half-life."""
        half_life = self._evidence_half_life
        self.evidence = Evidence(self.policy.family, len(self.tracks), half_life)
        for one in self.arrivals:
            self.evidence.add(one.made, one.y, one.means)

    @property
    def _evidence_half_life(self) -> int:
        half_life = EVIDENCE * (self.pace.interval or 1e6)
        while half_life < self.pace.delay:
            half_life *= 2.0
        return max(1, round(half_life))

    def _pick(self) -> None:
        """Use the longest half-life that predicts nearly as well as the best."""
        if self._evidence_half_life != self.evidence.half_life:
            self._weigh()
        least = LEAST_DELAY * self.pace.delay
        allowed = [
            n == 0 or (track.half_life is not None and track.half_life >= least)
            for n, track in enumerate(self.tracks)
        ]
        picked = self.evidence.best(allowed)
        if picked != self.picked:
            self._use(picked)

    def _use(self, picked: int) -> None:
        self.picked = self.model.picked = picked
        self.since = self._stamp
        if not self._bulk:
            self.fit()
