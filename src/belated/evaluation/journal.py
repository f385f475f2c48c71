"""What a bandit earns, by its journal: what :class:`~belated.Bandit` and the commands call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from belated.core.events import Record
from belated.core.inputs import Matrix, Vector
from belated.core.rewards import Rewards
from belated.core.times import Duration, Moment, as_microseconds
from belated.evaluation.requests import Offers, evaluable, read_offers
from belated.evaluation.sources import JournalTable, read_journal
from belated.evaluation.values import Value, off_policy_value
from belated.exceptions import InvalidInput, NotEvaluable
from belated.expressions import as_features, family_in
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal
from belated.journals.identity import semantics_of
from belated.model.families import Family
from belated.model.model import Model
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
        value = off_policy_value(table, offers, shares, self.family, limit=limit, level=level)
        if not offers.outdated:
            return value
        note = f"{offers.outdated:,} decisions are left out: their catalogue has changed since"
        return replace(value, notes=(*value.notes, note))

    def fold(self, policy: Policy, until: int | None) -> Fold:
        """Return an empty fold that learns what a policy would know at a moment."""
        partitions, retention = self.journal.partitions, self.retention
        policy = policy.bound_to(self.features)
        return Fold(
            policy,
            self.rewards,
            features=self.features,
            partitions=partitions,
            retention=retention,
            until=until,
        )

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
        return frozen(fold.policy, fold.model)


#: Takes the rows of a request and the names of its actions; gives the probability of each.
Target = Callable[[Matrix, Sequence[int | str]], Any]

#: A floor that changes no probability; with it a policy says those of all actions.
_NONE = 1e-300


def frozen(policy: Policy, model: Model) -> Target:
    """A policy with a model that does not change."""
    telling = replace(policy, floor=policy.floor or _NONE)
    rng = np.random.default_rng(0)
    still = copy(model)
    still.derived = dict(model.derived)

    def shares(rows: Matrix, actions: Sequence[int | str]) -> Vector:
        choice = telling.choose(still, rows, rng)
        if choice.shares is not None:
            return np.array(choice.shares)
        if choice.propensity < 1.0:
            name = type(policy).__name__
            raise NotEvaluable(f"{name} does not say the probability of every action")
        return _only(choice.index, len(rows))

    return shares


def named(name: int | str) -> Target:
    """``uniform``, ``first``, or always the action of a name."""
    if name == "uniform":
        return lambda rows, actions: np.full(len(rows), 1.0 / len(rows))
    if name == "first":
        return lambda rows, actions: _only(0, len(rows))

    def only(rows: Matrix, actions: Sequence[int | str]) -> Vector:
        places = [place for place, one in enumerate(actions) if one == name or str(one) == name]
        if not places:
            message = f"a request does not offer the action {name!r}, but {list(actions)!r}"
            raise InvalidInput(f"{message}: evaluate one that is always offered", name)
        return _only(places[0], len(rows))

    return only


def _only(place: int, count: int) -> Vector:
    shares = np.zeros(count)
    shares[place] = 1.0
    return shares


def target_shares(target: Target, offers: Offers) -> Vector:
    """Return the probability that a policy gives every row.

    Args:
        target: the policy.
        offers: what decisions were chosen from.

    Raises:
        InvalidInput: it gives no probabilities.
    """
    shares = np.empty(len(offers.rows))
    ends = offers.starts + offers.counts
    actions = offers.actions.tolist()
    for start, end in zip(offers.starts.tolist(), ends.tolist(), strict=True):
        given = np.asarray(
            target(offers.rows[start:end].astype(np.float64), actions[start:end]), np.float64
        )
        fits = given.shape == (end - start,) and (given >= 0.0).all()
        if not fits or abs(given.sum() - 1.0) > 1e-6:
            message = f"the policy returned {given!r} for {end - start} actions"
            raise InvalidInput(f"{message}: one probability for each was expected", given)
        shares[start:end] = given
    return shares
