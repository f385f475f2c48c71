"""What a bandit earns, and when its rewards come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from belated.bandit.deciding import Deciding
from belated.learner.evidence import evidence_of
from belated.policies import Policy
from belated.rewards import Rewards
from belated.times import Duration, Moment

if TYPE_CHECKING:  # imported when it is asked for: who only decides needs nothing of it
    from belated.evaluation import DelayCurve, Dependence, Forecast, Lift, Value
    from belated.evaluation.journal import JournalEvaluation
    from belated.evaluation.targets import Target
    from belated.report import Report


class Evaluating(Deciding):
    """How a :class:`~belated.Bandit` is evaluated; each call reads its journal."""

    rewards: Rewards
    _retention: int | None

    def frame(self, *, requests: bool = False) -> Any:
        """Return a DataFrame of pandas: one line a decision, with what has become of it.

        Args:
            requests: add what each was chosen from, as far as it was kept.

        Raises:
            MissingExtra: pandas is not installed.
        """
        return self._evaluation().frame(requests=requests)

    def evaluate(
        self,
        policy: Policy | Target | int | str,
        *,
        since: Moment | None = None,
        limit: Duration | None = None,
        level: float = 0.95,
    ) -> Value:
        """Return what another policy would have earned per decision, had it decided.

        Only decisions of this bandit's policy count, and only if their requests were kept. A policy
        of this library learns from what was known at ``since``, and is evaluated on what was
        decided from then on.

        Args:
            policy: ``"uniform"``, ``"first"``, the name of an action, a policy, or a function from
                rows and the names of actions to the probability of each.
            since: leave out decisions that were made before; needed for a policy that learns.
            limit: count rewards that come within this time only.
            level: of the intervals.

        Raises:
            NotEvaluable: the decisions say too little of that policy; the error says what to do.
        """
        return self._evaluation().evaluate(policy, since=since, limit=limit, level=level)

    def lift(self, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
        """Return what the policy earns beyond the holdout.

        Args:
            limit: count rewards that come within this time only.
            level: of the intervals.

        Raises:
            NotEvaluable: there is no holdout, or it has hardly a reward yet.
        """
        return self._evaluation().lift(limit=limit, level=level)

    def delay_curve(self, *, level: float = 0.95) -> DelayCurve:
        """Return which share of the rewards has come by which age.

        Args:
            level: of the bands.
        """
        return self._evaluation().delay_curve(level=level)

    def forecast(
        self, ahead: Duration | Sequence[Duration] | None = None, *, level: float = 0.95
    ) -> Forecast:
        """Return how many of the missing rewards are still to come.

        Args:
            ahead: how far to look, as ``"3d"`` or ``["1d", "7d"]``; None: all that will come.
            level: of the intervals.
        """
        return self._evaluation().forecast(ahead, level=level)

    def delay_depends(self, on: Literal["action", "reward"] = "action") -> Dependence:
        """Test whether delays depend on the action, or on the reward.

        Args:
            on: ``"action"`` or ``"reward"``.
        """
        return self._evaluation().delay_depends(on)

    def report(self) -> Report:
        """Return what the bandit earns on one page: shown by a notebook, saved as HTML or JSON.

        Raises:
            InvalidInput: nothing was decided yet.
        """
        from belated.report import Report

        with self._lock, self._follower:
            estimate = self._fold.learner.estimate
            evidence = evidence_of(self._fold, self._follower.refused["duplicate"])
        return Report.of(self._evaluation(), estimate, evidence)

    def _evaluation(self) -> JournalEvaluation:
        from belated.evaluation.journal import JournalEvaluation

        return JournalEvaluation(
            self.journal,
            self.policy.family,
            self.rewards,
            self._retention,
            self.features,
            self._fold.until,
        )
