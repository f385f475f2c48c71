"""Base class of logs: decisions with their outcomes, and the estimates computed from them."""

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
    """Decisions with their outcomes, from a data frame or from the journal of a bandit.

    Attributes:
        name: name of the bandit.
        family: family of the rewards.
        rewards: what a missing reward means.
        retention: how long a decision accepts rewards, in microseconds; None means forever.
        features: the features that encode contexts as rows, if any.
        until: records with a later timestamp are ignored; None means that all records are used.
        actions: names of the actions; None if the features do not name them.
        journal: the journal with the records.
    """

    name: str
    family: Family
    rewards: Rewards
    retention: int | None
    features: Features | None
    until: int | None
    actions: Sequence[int | str] | None
    journal: Journal

    # --- access to the decisions ----------------------------------------------------------------

    def table(self, watch: Callable[[Record, str], None] | None = None) -> JournalTable:
        """Return a table with one row per decision.

        Args:
            watch: called with each record and its status, if the log has records.
        """
        raise NotImplementedError

    def offers(self, table: JournalTable) -> tuple[Mask, Offers]:
        """Return a mask of the decisions with a usable request, and their offered actions."""
        raise NotImplementedError

    def contexts(self, table: JournalTable) -> Iterator[tuple[int, Any]]:
        """Yield the row index and the context of each decision whose context is known."""
        raise NotImplementedError

    def predicted(self, table: JournalTable) -> JournalTable:
        """Return the table with the mean rewards that were predicted when choosing."""
        return table

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the bandit that made the decisions, as text by name; empty if unknown."""
        return {}

    @property
    def action_changes(self) -> dict[str, ActionChanged]:
        """The last change of each action that was paused, resumed or retired."""
        return {}

    def lines(self, table: JournalTable) -> NDArray[np.int64]:
        """Return each decision's row in a matrix of probabilities for the whole table."""
        return np.arange(len(table))

    # --- estimates ------------------------------------------------------------------------------

    def evaluate(
        self,
        target: Target,
        *,
        since: Moment | None = None,
        limit: Duration | None = None,
        level: float = 0.95,
    ) -> Value:
        """Estimate what the mean reward per decision would have been with another policy.

        Args:
            target: ``"uniform"``, ``"first"`` or the name of an action; a function of the context
                and the names of the offered actions that returns the probability of each action,
                or the name of one; an array or data frame of probabilities, with a row for each
                decision and a column for each action; or a policy, which learns from the records
                up to ``since``.
            since: ignore decisions made earlier; required for a policy.
            limit: count only rewards that arrive within this time of the decision.
            level: confidence level of the intervals.

        Raises:
            NotEvaluable: the log contains too little information about the target; the error says
                what to do.
        """
        start = None if since is None else as_microseconds(since, "since")
        if isinstance(target, Policy) and start is None:
            message = "a policy evaluated on the decisions it learned from looks better than it is"
            raise InvalidInput(
                f"{message}: pass `since`, so that the policy learns from earlier data and is"
                " evaluated on later decisions",
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
                "the policy and its holdout have made no decisions, or none after `since`: wait for"
                " decisions"
            )
        usable, offers = self.offers(table)
        table = table.select(usable)
        offers = offers.over_groups(table)
        if isinstance(target, Policy):
            assert start is not None
            shares = shares_of_policy(*self._learned(target, start - 1), offers)
        elif isinstance(target, int | str):
            shares = shares_of_name(target, offers)
        elif callable(target):
            shares = shares_of_rule(target, dict(self.contexts(table)), offers)
        else:
            lines = self.lines(whole)[chosen][usable]
            shares = shares_of_matrix(target, offers, lines, len(whole), self.actions)
        value = off_policy_value(table, offers, shares, self.family, limit=limit, level=level)
        if not offers.outdated:
            return value
        note = f"{offers.outdated:,} decisions are left out, because the catalogue has changed"
        return replace(value, notes=(*value.notes, note))

    def lift(self, *, limit: Duration | None = None, level: float = 0.95) -> Lift:
        """Estimate the lift of the policy over the holdout; see :meth:`belated.Bandit.lift`."""
        return lift(self.table(), limit=limit, level=level)

    def delay_curve(self, *, level: float = 0.95) -> DelayCurve:
        """Estimate the share of rewards that has arrived by each age of a decision."""
        return delay_curve(self.table(), level=level)

    def forecast(
        self, ahead: Duration | Sequence[Duration] | None = None, *, level: float = 0.95
    ) -> Forecast:
        """Forecast how many rewards are still to come; see :meth:`belated.Bandit.forecast`."""
        return forecast(self.predicted(self.table()), ahead, level=level)

    def delay_depends(self, on: Literal["action", "reward"] = "action") -> Dependence:
        """Test whether delays depend on the action, or on the reward."""
        return delay_depends(self.table(), on)

    def report(self) -> Report:
        """Return a one-page report. Notebooks display it; it can be saved as HTML or JSON."""
        from belated.report import Report

        return Report.of(self)

    def fold(self, policy: Policy, until: int | None) -> Fold:
        """Return an empty fold, from which a policy learns the records up to ``until``."""
        return Fold(
            policy.bound_to(self.features),
            self.rewards,
            features=self.features,
            partitions=self.journal.partitions,
            retention=self.retention,
            until=until,
        )

    def _learned(self, policy: Policy, until: int) -> tuple[Policy, Any]:
        """Return a policy and the model it would have learned from the records up to ``until``."""
        fold = self.fold(policy, until)
        fold.begin(self.journal)
        fold.catch_up(self.journal)
        return fold.policy, fold.learner.model

    def __repr__(self) -> str:
        table = self.table()
        arrived = int(table.arrived.sum())
        return f"<Log {self.name!r}: {len(table):,} decisions, {arrived:,} rewarded>"
