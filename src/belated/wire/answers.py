"""What is answered over HTTP: the types behind the routes and the OpenAPI document."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import msgspec

from belated.core.events import Activation, Decision, Record, Reward, Void, kind_of
from belated.core.results import Result
from belated.core.times import as_datetime
from belated.fold.decision_history import DecisionHistory
from belated.fold.requests import KeptRequest


class Answer(Result, msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client returns."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, as it was sent: times are text."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Decided(Answer, frozen=True):
    """A decision, safely kept before it was answered.

    Attributes:
        id: under which its reward is reported.
        action: the name of the chosen action, or its index where none were given.
        index: its place among those offered.
        propensity: the probability with which it was chosen. Off-policy estimates need a policy
            with a ``floor``, or ``randomized=True``: without, it is 1, or too small to divide by.
        mean: its predicted reward.
        model: the version of the model that chose.
        at: when.
        token: that may be sent with the reward in place of a key, where the bandit makes them.
        slot: that the next id should have if the client makes it, so that decisions that are
            committed together fill one partition; only where there are several.
    """

    id: str
    action: int | str
    index: int
    propensity: float
    mean: float
    model: int
    at: datetime
    token: str | None = None
    slot: int | None = None

    @classmethod
    def of(cls, event: Decision, token: str | None = None, slot: int | None = None) -> Decided:
        """What is told of a decision."""
        return cls(
            event.id,
            event.action,
            event.index,
            event.propensity,
            event.mean,
            event.model,
            event.at,
            token,
            slot,
        )


class ManyDecided(msgspec.Struct, frozen=True, omit_defaults=True):
    """Decisions, in the order of their requests.

    Attributes:
        decisions: one a request.
        slot: that the next ids should have, as of :class:`Decided`.
    """

    decisions: list[Decided]
    slot: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """It is safe. What it means is known to the learner, and told by GET.

    The answer is the same for every id, also for one that nobody knows.
    """

    id: str
    status: str = "accepted"


class ManyAccepted(msgspec.Struct, frozen=True):
    """All of them are safe."""

    accepted: int


class Chosen(Decided, frozen=True, kw_only=True):
    """A decision with its row.

    Attributes:
        x: the row that was chosen.
        activated: false if the outcome clock starts only with an activation.
        source: who chose: policy, holdout, baseline or fallback.
    """

    x: list[float]
    activated: bool
    source: str


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record of a decision.

    Attributes:
        kind: decision, activation, reward or void.
        recorded: when the journal took it.
        at: when it happened, by the clock of whoever told it.
        status: what it was when it came: decided, rewarded, duplicate, revised, late, …
        value: of a reward.
        part: of a reward.
        revision: of a reward.
    """

    kind: str
    recorded: datetime
    at: datetime
    status: str
    value: float | None = None
    part: str = ""
    revision: int = 0

    @classmethod
    def of(cls, record: Record, status: str) -> Happened:
        """What is told of a record."""
        event = record.event
        assert isinstance(event, Decision | Activation | Reward | Void)
        kind, recorded = kind_of(event), as_datetime(record.recorded)
        if isinstance(event, Reward):
            value = event.value if math.isfinite(event.value) else None
            return cls(kind, recorded, event.at, status, value, event.part, event.revision)
        return cls(kind, recorded, event.at, status)


class Offered(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a decision was chosen from.

    Attributes:
        share: the probability with which the request was kept.
        actions: the names of the actions; null: their indices.
        rows: the row of each; null if features made them of the next two.
        context: as it was sent.
        records: a record for each action, if any were sent.
        propensities: the probability of each action; null if the policy did not say all of them.
    """

    share: float
    actions: list[int | str] | None = None
    rows: list[list[float]] | None = None
    context: Any = None
    records: list[Any] | None = None
    propensities: list[float] | None = None

    @classmethod
    def of(cls, request: KeptRequest) -> Offered:
        """What is told of a request."""
        return cls(**request.to_dict())


class DecisionDetails(Answer, frozen=True):
    """All that is known of one decision, from the records of the journal.

    Attributes:
        id: of the decision.
        state: dormant, pending, rewarded, defaulted, censored or voided; unmatched if something was
            told of it, but no decision is known; unknown if nothing was; erased if it was erased.
        decision: as it was made.
        value: what it is learned with, null if it is not.
        late: whether its reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        forgotten: whether its retention has ended.
        incomplete: whether records of it may be missing here, for old ones were trimmed.
        due: when its window ends.
        records: all of them, in their order.
        request: what it was chosen from, if that was kept.
    """

    id: str
    state: str
    decision: Chosen | None = None
    value: float | None = None
    late: bool = False
    conflict: bool = False
    forgotten: bool = False
    incomplete: bool = False
    due: datetime | None = None
    records: list[Happened] = []
    request: Offered | None = None

    @classmethod
    def of(cls, telling: DecisionHistory) -> DecisionDetails:
        """What was read of a decision."""
        entry, event, kept = telling.entry, telling.decision, telling.request
        chosen = None
        if event is not None:
            chosen = Chosen(
                **msgspec.structs.asdict(Decided.of(event)),
                x=event.x.tolist(),
                activated=event.activated,
                source=event.source,
            )
        return cls(
            telling.id,
            telling.state,
            chosen,
            telling.value,
            late=entry is not None and entry.late,
            conflict=entry is not None and entry.conflict,
            forgotten=telling.forgotten,
            incomplete=telling.incomplete,
            due=None if entry is None else entry.due,
            records=[Happened.of(*told) for told in telling.records],
            request=None if kept is None else Offered.of(KeptRequest.read(kept)),
        )


class Alive(msgspec.Struct, frozen=True):
    """The process runs."""

    status: str = "alive"


class Dead(msgspec.Struct, frozen=True):
    """The process must be restarted: some of its workers have ended, or fail all the time.

    Attributes:
        dead_workers: why each of them counts as dead, by its name.
        status: dead.
    """

    dead_workers: dict[str, str]
    status: str = "dead"


class Ready(msgspec.Struct, frozen=True):
    """Whether requests should come here.

    Attributes:
        status: ready, stale, draining (it will stop soon), or journal replaced: the file of SQLite
            was removed or replaced, and nothing is accepted until the service is restarted.
        stale_bandits: the bandits whose model is too old; not told where the service asks for keys.
    """

    status: str
    stale_bandits: list[str]


class BanditState(Answer, frozen=True):
    """How it stands with a bandit, by the model that chooses now.

    Attributes:
        bandit: its name.
        policy: how it chooses.
        version: records that the model has learned from.
        observations: rewards it knows.
        pending: decisions whose reward is out, those of this decider included.
        model_age_seconds: age of the model; null before the first one.
        mode: how it decides: learn, freeze, baseline or off.
    """

    bandit: str
    policy: str
    version: int
    observations: int
    pending: int
    model_age_seconds: float | None
    mode: str


class Switch(msgspec.Struct, frozen=True):
    """How a bandit decides within a second.

    Attributes:
        mode: as asked for.
        reason: likewise.
        at: when it was switched.
    """

    mode: str
    reason: str
    at: datetime
