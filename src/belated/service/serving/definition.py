"""The definition of a served bandit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from belated.core.rewards import Rewards
from belated.core.times import CLOCK_SKEW
from belated.decider import UNIFORM, Holdout
from belated.features import Features, PerArm
from belated.fold.requests import Keep
from belated.journals import Journal
from belated.journals.identity import check_change, identify, identity_of
from belated.policies import Policy
from belated.service.access.tokens import TokenMode

#: Whether one learner or many learners work on a bandit at the same time.
LearnerCount = Literal["one", "many"]


@dataclass(frozen=True)
class Definition:
    """The settings of a bandit that a service serves.

    Attributes:
        name: Name of the bandit, which appears in request URLs.
        policy: Policy that chooses actions.
        rewards: Meaning of a missing reward.
        features: Computes rows from a context and actions; None if requests contain rows.
        retention: How long a decision accepts rewards, in microseconds; None for no limit.
        partitions: Number of partitions in the journal; None to keep the number in an existing
            journal, or to use 1 in a new journal.
        tokens: Whether decisions include a reward token, and whether rewards require it.
        token_lifetime: Lifetime of a reward token in microseconds; None for as long as the bandit
            learns from rewards.
        baseline: How to choose without a model: the name of an action, ``first`` or ``uniform``.
        keep_requests: Share of decisions whose requests are stored; 0 for none. ``"auto"`` stores
            every request of up to 4 KiB, and a sample of the larger ones that takes 4 KiB per
            decision on average. Requests can contain personal data.
        contexts: Whether each decision is stored with its context, so that features can be changed
            later. Contexts can contain personal data.
        holdout: Share of decisions made by a baseline instead of the policy, to measure how much
            more the policy earns.
        subject: Context field that contains the subject; None if subjects are only named explicitly
            in requests.
        clock_skew: Tolerated difference between the clocks of callers and of the service, in
            microseconds.
        learners: ``"one"`` if one learner handles all partitions and others are standbys;
            ``"many"`` if learners share the partitions.
        outcomes: Whether the learner also stores the outcome of each decision, as a message for
            other programs.
    """

    name: str
    policy: Policy
    rewards: Rewards
    features: Features | None = None
    retention: int | None = None
    partitions: int | None = None
    tokens: TokenMode = "off"
    token_lifetime: int | None = None
    baseline: int | str = UNIFORM
    keep_requests: Keep = "auto"
    contexts: bool = True
    holdout: Holdout | None = None
    subject: str | None = None
    learners: LearnerCount = "one"
    clock_skew: int = CLOCK_SKEW
    outcomes: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", self.policy.bound_to(self.features))
        _ = self.policy.start  # raises an error if the model does not fit into memory

    def identify(self, journal: Journal) -> None:
        """Store the bandit's identity in a new journal. Refuse a journal of a different bandit."""
        identify(journal, **self._identity)

    def check_change(self, identity: Mapping[str, str]) -> None:
        """Raise an error if this bandit cannot open a journal. Nothing is written to the journal.

        Args:
            identity: Identity stored in the journal.
        """
        if identity != self.identity:
            check_change(identity, self.identity, self.features)

    @property
    def identity(self) -> dict[str, str]:
        """The identity that a journal of this bandit stores."""
        return identity_of(**self._identity)

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "family": repr(self.policy.family),
            "dim": self.policy.dim,
            "features": self.features,
            "contexts": self.contexts,
        }

    @property
    def actions(self) -> frozenset[str]:
        """The names of the actions that the features declare; empty if requests name them."""
        names = self.features.actions if isinstance(self.features, PerArm) else ()
        return frozenset(map(str, names))
