"""What a bandit earns, by its journal: what :class:`~belated.Bandit` and the commands call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from belated.core.events import Record
from belated.core.rewards import Rewards
from belated.core.times import Duration, Moment, as_microseconds
from belated.evaluation.requests import evaluable, read_offers
from belated.evaluation.sources import JournalTable, read_journal
from belated.evaluation.targets import Target, frozen, named, target_shares
from belated.evaluation.values import Value, off_policy_value
from belated.exceptions import InvalidInput
from belated.expressions import as_features, family_in
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.journals.identity import semantics_of
from belated.model.families import Family
from belated.policies import Policy


@dataclass(frozen=True, eq=False)
class JournalEvaluation:
    """Evaluates the decisions of a journal; each call reads it anew.

    Attributes:
        journal: to read.
        family: of the rewards.
        rewards: what a missing reward means.
        retention: how long a reward counts, in microseconds.
        features: that make rows, if any do.
        until: records stamped later are not there.
        step: is told how many records were read, for a progress bar.
    """

    journal: Journal
    family: Family
    rewards: Rewards
    retention: int | None = None
    features: Features | None = None
    until: int | None = None
    step: Callable[[int], None] = lambda count: None

    @classmethod
    def of_journal(cls, journal: Journal, **settings: Any) -> JournalEvaluation:
        """As the journal says what its bandit is.

        Raises:
            InvalidInput: it does not say it, or names a family or features of your own.
        """
        configured = journal.configured()
        if configured is None:
            message = f"the journal of {journal.bandit!r} does not say what its bandit is"
            raise InvalidInput(f"{message}: open it with Bandit(...), and evaluate that", None)
        said = configured.settings
        rewards, retention = semantics_of(said)
        features = as_features(said["features"]) if "features" in said else None
        family = family_in(said["policy"])
        return cls(journal, family, rewards, retention, features, **settings)

    def table(self, watch: Callable[[Record, str], None] | None = None) -> JournalTable:
        """Return one line a decision; ``watch`` is told every record, and what it meant."""
        return read_journal(
            self.journal,
            rewards=self.rewards,
            retention=self.retention,
            support=self.family.support,
            until=self.until,
            step=self.step,
            watch=watch,
        )

    def evaluate(
        self,
        policy: Policy | Target | int | str,
        *,
        since: Moment | None = None,
        limit: Duration | None = None,
        level: float = 0.95,
    ) -> Value:
        """Return what another policy would have earned; see :meth:`belated.Bandit.evaluate`."""
        start = None if since is None else as_microseconds(since, "since")
        target = self._target(policy, start)
        table = evaluable(self.table())
        if start is not None:
            table = table.select(table.recorded >= start)
        kept, offers = read_offers(self.journal, table, self.features)
        shares = target_shares(target, offers)
        table = table.select(kept)
        return off_policy_value(table, offers, shares, self.family, limit=limit, level=level)

    def fold(self, policy: Policy, until: int | None) -> Fold:
        """Return an empty fold that learns what a policy would know at a moment."""
        partitions, retention = self.journal.partitions, self.retention
        return Fold(policy, self.rewards, partitions=partitions, retention=retention, until=until)

    def _target(self, policy: Policy | Target | int | str, since: int | None) -> Target:
        if isinstance(policy, int | str):
            return named(policy)
        if not isinstance(policy, Policy):
            return policy
        if since is None:
            message = "a policy that learns from the decisions it is evaluated on looks too good"
            raise InvalidInput(
                f"{message}: pass since=, so that it learns from what was known then and is"
                " evaluated on what was decided afterwards",
                policy,
            )
        fold = self.fold(policy, since - 1)
        fold.begin(self.journal)
        fold.catch_up(self.journal)
        return frozen(policy, fold.model)
