"""Decisions with what has become of them: what every question about earnings is asked of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from belated.core.events import ActionChanged, Record
from belated.core.rewards import Rewards
from belated.core.times import Duration, Moment, as_microseconds
from belated.decider.holdouts import HELD
from belated.evaluation.delays import DelayCurve, Dependence, delay_curve, delay_depends
from belated.evaluation.forecasts import Forecast, forecast
from belated.evaluation.lifts import Lift, lift
from belated.evaluation.requests import Offers
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES, Mask
from belated.evaluation.targets import (
    Target,
    shares_of_matrix,
    shares_of_name,
    shares_of_policy,
    shares_of_rule,
)
from belated.evaluation.values import Value, off_policy_value
from belated.exceptions import InvalidInput, NotEvaluable
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.model.families import Family
from belated.policies import Policy

if TYPE_CHECKING:
    from belated.report import Report


class DecisionLog:
    """Decisions with what has become of each: in a frame, or in the journal of a bandit.

    Attributes:
        name: of the bandit.
        family: of the rewards.
        rewards: what a missing reward means.
        retention: how long a reward counts, in microseconds; None: for ever.
        features: that make rows of contexts, if any do.
        until: records stamped later are not there; None: all are.
        actions: names of the actions; None if the features do not name them.
        journal: its records.
    """

    name: str
    family: Family
    rewards: Rewards
    retention: int | None
    features: Features | None
    until: int | None
    actions: Sequence[int | str] | None
    journal: Journal

    # --- where decisions are --------------------------------------------------------------------

    def table(self, watch: Callable[[Record, str], None] | None = None) -> JournalTable:
        """Return one line a decision.

        Args:
            watch: is told every record, and what it meant, if the log has records.
        """
        raise NotImplementedError

    def offers(self, table: JournalTable) -> tuple[Mask, Offers]:
        """Return which decisions of a table have their request, and what they were chosen from."""
        raise NotImplementedError

    def contexts(self, table: JournalTable) -> Iterator[tuple[int, Any]]:
        """Yield the lines of a table whose context is known, each with the context."""
        raise NotImplementedError

    def predicted(self, table: JournalTable) -> JournalTable:
        """Return decisions with the means that were predicted at the choice."""
        return table

    @property
    def settings(self) -> Mapping[str, str]:
        """What decided, as readable text by name; empty if that is not known."""
        return {}

    @property
    def action_changes(self) -> dict[str, ActionChanged]:
        """The last change of each action that was paused, resumed or retired."""
        return {}

    def lines(self, table: JournalTable) -> NDArray[np.int64]:
        """Return where each decision of the whole table is in a matrix of probabilities."""
        return np.arange(len(table))

    # --- what they say --------------------------------------------------------------------------

    def evaluate(
        self,
        target: Target,
        *,
        since: Moment | None = None,
        limit: Duration | None = None,
        level: float = 0.95,
    ) -> Value:
        """Return what another policy would have earned per decision, had it decided.

        Args:
            target: ``"uniform"``, ``"first"`` or the name of an action; a function of the context
                and the names of the actions on offer, which returns the probability of each, or one
                name; a matrix of probabilities, with a line for each decision and a column for
                each action, or a frame of them; or a policy, which learns from what was known at
                ``since``.
            since: leave out decisions that were made before; needed for a policy.
            limit: count rewards that come within this time only.
            level: of the intervals.

        Raises:
            NotEvaluable: the log says too little of that policy; the error says what to do.
        """
        start = None if since is None else as_microseconds(since, "since")
        if isinstance(target, Policy) and start is None:
            message = "a policy that learns from the decisions it is evaluated on looks too good"
            raise InvalidInput(
                f"{message}: pass since=, so that it learns from what was known then and is"
                " evaluated on what was decided afterwards",
                target,
            )
        whole = self.table()
        chosen = whole.took_effect & (whole.source == SOURCES.index("policy"))
        chosen |= whole.took_effect & whole.in_group(HELD) & np.isfinite(whole.overall)
        if start is not None:
            chosen &= whole.recorded >= start
        table = whole.select(chosen)
        if not len(table):
            raise NotEvaluable(
                "no decision was made by the policy or a holdout, or none since then: wait for some"
            )
        kept, offers = self.offers(table)
        table = table.select(kept)
        offers = offers.over_groups(table)
        if isinstance(target, Policy):
            assert start is not None
            shares = shares_of_policy(*self._learned(target, start - 1), offers)
        elif isinstance(target, int | str):
            shares = shares_of_name(target, offers)
        elif callable(target):
            shares = shares_of_rule(target, dict(self.contexts(table)), offers)
        else:
            lines = self.lines(whole)[chosen][kept]
            shares = shares_of_matrix(target, offers, lines, len(whole), self.actions)
        value = off_policy_value(table, offers, shares, self.family, limit=limit, level=level)
        if not offers.outdated:
            return value
        note = f"{offers.outdated:,} decisions are left out: their catalogue has changed since"
        return replace(value, notes=(*value.notes, note))

    def lift(self, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
        """Return what the policy earns beyond the holdout; see :meth:`belated.Bandit.lift`."""
        return lift(self.table(), limit=limit, level=level)

    def delay_curve(self, *, level: float = 0.95) -> DelayCurve:
        """Return which share of the rewards has come by which age."""
        return delay_curve(self.table(), level=level)

    def forecast(
        self, ahead: Duration | Sequence[Duration] | None = None, *, level: float = 0.95
    ) -> Forecast:
        """Return how many rewards are still to come; see :meth:`belated.Bandit.forecast`."""
        return forecast(self.predicted(self.table()), ahead, level=level)

    def delay_depends(self, on: Literal["action", "reward"] = "action") -> Dependence:
        """Test whether delays depend on the action, or on the reward."""
        return delay_depends(self.table(), on)

    def report(self) -> Report:
        """Return all of it on one page: shown by a notebook, saved as HTML or JSON."""
        from belated.report import Report

        return Report.of(self)

    def fold(self, policy: Policy, until: int | None) -> Fold:
        """Return an empty fold that learns what a policy would know at a moment."""
        return Fold(
            policy.bound_to(self.features),
            self.rewards,
            features=self.features,
            partitions=self.journal.partitions,
            retention=self.retention,
            until=until,
        )

    def _learned(self, policy: Policy, until: int) -> tuple[Policy, Any]:
        """A policy, and the model that it would have had at a moment."""
        fold = self.fold(policy, until)
        fold.begin(self.journal)
        fold.catch_up(self.journal)
        return fold.policy, fold.learner.model

    def __repr__(self) -> str:
        table = self.table()
        came = int(table.arrived.sum())
        return f"<Log {self.name!r}: {len(table):,} decisions, {came:,} rewarded>"
