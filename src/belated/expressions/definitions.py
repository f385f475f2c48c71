"""What a bandit is made of: its policy, what silence means, and its features."""

from __future__ import annotations

import datetime
import re

from belated.core.rewards import ConversionsOnly, DefaultAfter, Explicit, Rewards
from belated.expressions.reader import Kind, Reader, by_name
from belated.expressions.registry import POLICY_NAMES
from belated.features import Category, Features, Flag, Hashed, Number, PerArm, Shared
from belated.model import estimators, families
from belated.model.families import Family
from belated.policies import Policy

_FAMILIES = (families.Bernoulli, families.Gaussian, families.Poisson)
_ESTIMATORS = (estimators.Laplace, estimators.Online, estimators.Ridge, estimators.Thinned)


def timedelta(
    *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
) -> datetime.timedelta:
    """That of :mod:`datetime`, with its arguments written by name."""
    return datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)


WHOLE_POLICIES = Kind(
    noun="policy",
    example="DelayedUCB(dim=20, family=Bernoulli())",
    names=POLICY_NAMES,
    parts=by_name(*_FAMILIES, *_ESTIMATORS),
    given={"prior": "it cannot be written as text"},
)
FAMILIES = Kind(noun="family of rewards", example="Bernoulli()", names=by_name(*_FAMILIES))
REWARDS = Kind(
    noun="value of rewards",
    example="ConversionsOnly('7d')",
    names=by_name(ConversionsOnly, DefaultAfter, Explicit),
    parts={"timedelta": timedelta},
)
FEATURES = Kind(
    noun="description of features",
    example="PerArm(['blue', 'red'], context={'age': Number(18, 90)})",
    names=by_name(PerArm, Shared, Hashed),
    parts=by_name(Number, Category, Flag),
)


def as_whole_policy(text: str) -> Policy:
    """A policy that says itself how wide its rows are, and of which family its rewards.

    >>> as_whole_policy("DelayedUCB(dim=20, family=Bernoulli())").dim
    20
    """
    policy: Policy = Reader(WHOLE_POLICIES, text).made()
    return policy


def family_in(text: str) -> Family:
    """The family of rewards in the ``repr`` of a policy, whatever else it says.

    >>> family_in("DelayedUCB(dim=20, family=Bernoulli(), prior=None)")
    Bernoulli()

    Raises:
        InvalidInput: it names no family of this library.
    """
    found = re.search(r"\bfamily=(\w+\([^()]*\))", text)
    family: Family = Reader(FAMILIES, text if found is None else found[1]).made()
    return family


def as_semantics(text: str) -> Rewards:
    """Return what a missing reward means.

    >>> as_semantics("ConversionsOnly('12h')").window
    datetime.timedelta(seconds=43200)
    """
    rewards: Rewards = Reader(REWARDS, text).made()
    return rewards


def as_features(text: str) -> Features:
    """From records to rows; ``repr`` of the features is such a text.

    >>> as_features("PerArm(['blue', 'red'], context={'age': Number(18, 90)})").dim
    4
    """
    features: Features = Reader(FEATURES, text).made()
    return features
