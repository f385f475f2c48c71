"""A bandit as the configuration defines it."""

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

#: How many learners a bandit has at a time.
LearnerCount = Literal["one", "many"]


@dataclass(frozen=True)
class Definition:
    """What a served bandit is.

    Attributes:
        name: it stands in the address of every request.
        policy: how actions are chosen.
        rewards: what a missing reward means.
        features: from a context and actions to rows; None if requests have rows.
        retention: how long a decision accepts rewards, in microseconds; None: for ever.
        partitions: of its journal; None for as many as there are, and 1 in a new one.
        tokens: whether decisions come with a reward token, and whether rewards need it.
        token_lifetime: of a reward token, in microseconds; None: as long as rewards are learned.
        baseline: how to choose without a model: the name of an action, ``first`` or ``uniform``.
        keep_requests: share of the decisions whose request is kept; "auto": all, but of those above
            4 KiB as many as take 4 KiB on average; 0: none. Requests can be personal data.
        contexts: whether each decision is stored with its context, so that features can change. It
            can be personal data.
        holdout: a share of decisions that a baseline makes, to see what the policy earns beyond it.
        subject: the field of contexts that names the subject; None if only requests name it.
        clock_skew: by how much the clocks of callers may differ from ours, in microseconds.
        learners: "one" learns all partitions, and others stand by; "many" share the partitions.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", self.policy.bound_to(self.features))
        _ = self.policy.start  # refused now if it does not fit into memory

    def identify(self, journal: Journal) -> None:
        """Write into a new journal what the bandit is; refuse one that was made for another."""
        identify(journal, **self._identity)

    def check_change(self, identity: Mapping[str, str]) -> None:
        """Refuse a journal that this bandit cannot open; nothing is written.

        Args:
            identity: of the journal.
        """
        check_change(identity, identity_of(**self._identity), self.features)

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
        """Those that its features name; none where requests bring their own."""
        known = self.features.actions if isinstance(self.features, PerArm) else ()
        return frozenset(map(str, known))
