"""The bodies of requests and responses: the types behind the routes and the OpenAPI document."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from belated.advice.issues import Issue
from belated.core.events import Decision, DecisionEvent, Record, Reward, SubjectReward, kind_of
from belated.core.inputs import MAX_ENTRY, MAX_REWARD
from belated.core.results import Result
from belated.core.times import MAX_MICROSECONDS, MIN_MICROSECONDS, as_datetime
from belated.decider.actions import ActionState, Change
from belated.decider.models import ModelState, Version
from belated.features.records import MAX_ID
from belated.fold.decision_history import DecisionHistory
from belated.fold.requests import KeptRequest

#: How many decision requests, or rewards, may be in one request; more would make others wait.
MAX_BATCH = 1_000
#: The largest body of a request, in bytes.
MAX_BODY_BYTES = 1 << 20
#: How many actions may be in one decision request.
MAX_ACTIONS = 1_000
#: How many fields the context and the records of the actions of one decision request may have.
MAX_FIELDS = 20_000
#: How many pairs of a context field with an action or one of its fields: features may cross them.
MAX_PAIRS = 1_000_000
#: How many numbers the rows of one decision request may have, if features make them.
MAX_NUMBERS = 2_000_000
# `extra_json_schema` is documentation only: these bounds are checked elsewhere.
_NO_NUL = {"pattern": "^[^\\u0000]*$"}
Number = Annotated[
    float, msgspec.Meta(extra_json_schema={"minimum": -MAX_ENTRY, "maximum": MAX_ENTRY})
]
Rows = Annotated[
    list[list[Number]], msgspec.Meta(max_length=MAX_ACTIONS, extra_json_schema={"minItems": 1})
]
Packed = Annotated[str, msgspec.Meta(extra_json_schema={"contentEncoding": "base64"})]
Id = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=128, description="names a decision", extra_json_schema=_NO_NUL
    ),
]
Subject = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=128, description="names a user", extra_json_schema=_NO_NUL
    ),
]
EventId = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=128, description="names an outcome", extra_json_schema=_NO_NUL
    ),
]
Name = Annotated[str, msgspec.Meta(max_length=128, description="names an action")]
Action = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": -MAX_ID, "maximum": MAX_ID})]
Actions = Annotated[
    list[Action | Name],
    msgspec.Meta(max_length=MAX_ACTIONS, extra_json_schema={"minItems": 1, "uniqueItems": True}),
]
Records = Annotated[
    dict[Name, Any],
    msgspec.Meta(max_length=MAX_ACTIONS, extra_json_schema={"minProperties": 1}),
]
Value = Annotated[
    float, msgspec.Meta(extra_json_schema={"minimum": -MAX_REWARD, "maximum": MAX_REWARD})
]
#: A time that is sent. A number can only be microseconds: others are seconds or milliseconds.
EventTime = (
    Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, such as 2026-11-16T12:00:00Z")]
    | Annotated[
        int,
        msgspec.Meta(
            ge=MIN_MICROSECONDS, le=MAX_MICROSECONDS, description="microseconds since 1970"
        ),
    ]
)
#: Hint for a time that cannot be read.
TIME_HINT = "send RFC 3339 with its offset, such as 2026-11-16T12:00:00Z"


class Fallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a caller chose by itself, because the service was unavailable.

    Attributes:
        action: one of those offered.
        at: when it was chosen.
    """

    action: Action | Name
    at: EventTime


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Actions to choose from.

    Attributes:
        rows: a row of numbers for each action; or all of them as float32 numbers, row after row,
            little-endian, in base64.
        dim: how many numbers a row has: say it with base64, so that rows of another width are
            noticed.
        context: instead of rows, where the bandit has features.
        actions: a name for each action; or names with a record each, where the features read them:
            null for the record in their catalogue. With a context, all that the features know if
            none are named.
        id: your own name for the decision: the same id again gives the same decision.
        first_attempt: true if the id is a new UUID that was never sent before: it is then not
            looked up, which is quicker. A retry must not say so.
        activated: false if the outcome clock starts only with an activation.
        subject: whom the decision is for, such as a user; stored as given.
        sticky: a duration such as 1d: within it, the subject gets its latest decision again. Not
            in a batch.
        fallback: what was chosen without the service: it is recorded as it is, with the propensity
            1 and the source fallback, unless there is a decision under the id. Needs an id.
    """

    rows: Rows | Packed | None = None
    dim: int | None = None
    context: dict[str, Any] | list[float] | None = None
    actions: Actions | Records | None = None
    id: Id | None = None
    first_attempt: bool = False
    activated: bool = True
    subject: Subject | None = None
    sticky: Annotated[str, msgspec.Meta(min_length=2, max_length=32)] | None = None
    fallback: Fallback | None = None


class DecisionRequests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many at once, each as if the decisions before it were pending."""

    requests: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class RewardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reward of a decision, or one part of it.

    Attributes:
        value: the reward.
        at: when it happened; now if it is not given.
        part: of the reward, where it comes in several.
        revision: of this part: a higher one replaces it.
        token: that came with the decision, where one is needed; it alone allows neither at, part
            nor revision.
    """

    value: Value
    at: EventTime | None = None
    part: Annotated[str, msgspec.Meta(max_length=128, extra_json_schema=_NO_NUL)] = ""
    revision: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    token: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class NamedReward(RewardBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same, with the id of its decision."""

    id: Id


class RewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many rewards at once."""

    rewards: Annotated[list[NamedReward], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class SubjectRewardBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A reward of a subject, credited to the latest decision made for it by then.

    Attributes:
        subject: as its decisions name it.
        value: the reward.
        event_id: names the outcome, such as an order number: it counts once.
        at: when it happened; now if it is not given.
    """

    subject: Subject
    value: Value
    event_id: EventId
    at: EventTime | None = None


class SubjectRewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rewards of subjects."""

    rewards: Annotated[list[SubjectRewardBody], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ModeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a bandit is to decide from now on.

    Attributes:
        mode: learn: as usual. freeze: with the model of now, which does not change any more.
            baseline: without a model. off: not at all; rewards are taken.
        reason: why; recorded in the journal.
    """

    mode: Literal["learn", "freeze", "baseline", "off"]
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which model is to decide from now on.

    Attributes:
        version: of a model that is listed; latest: always the newest.
        reason: why; recorded in the journal.
    """

    version: Version
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is done to an action.

    Attributes:
        action: its name, as text.
        change: pause: do not choose it. resume: choose it again. retire: pause it for good.
        reason: why; recorded in the journal.
        start: from when on a pause or retirement holds; null: at once.
        until: when a pause ends; null: when the action is resumed.
    """

    action: Annotated[Name, msgspec.Meta(min_length=1)]
    change: Change
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    start: EventTime | None = None
    until: EventTime | None = None


class Answer(Result, msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client returns."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, as it was sent: times are text."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Decided(Answer, frozen=True):
    """A decision, durable before it was answered.

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
        repeated: true if it was made earlier, and is returned again because it is sticky.
        fallback: true if the policy did not choose: it failed, or the service was unavailable.
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
    repeated: bool = False
    fallback: bool = False

    @classmethod
    def of(
        cls,
        event: Decision,
        token: str | None = None,
        slot: int | None = None,
        repeated: bool = False,
    ) -> Decided:
        """Return the response for a decision."""
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
            repeated,
            event.source == "fallback",
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
    """The event is durable. What it came to is in the details of the decision.

    The response is the same for every id, including unknown ones.
    """

    id: str
    status: str = "accepted"


class ManyAccepted(msgspec.Struct, frozen=True):
    """All of them are durable."""

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
        kind: decision, activation, reward, void or subject_reward.
        recorded: when the journal took it.
        at: when it happened, by the clock of the reporter.
        status: what it was when it came: decided, rewarded, duplicate, revised, late, …
        value: of a reward.
        part: of a reward; of a reward of the subject, the id of its event.
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
        """Return a record as it is sent."""
        event = record.event
        assert isinstance(event, DecisionEvent | SubjectReward)
        kind, recorded = kind_of(event), as_datetime(record.recorded)
        if isinstance(event, Reward):
            value = event.value if math.isfinite(event.value) else None
            return cls(kind, recorded, event.at, status, value, event.part, event.revision)
        if isinstance(event, SubjectReward):
            return cls(kind, recorded, event.at, status, event.value, event.event_id)
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


class DecisionDetails(Answer, frozen=True):
    """All that is known of one decision, from the records of the journal.

    Attributes:
        id: of the decision.
        state: dormant, pending, rewarded, defaulted, censored or voided; unmatched if it has
            events but no known decision; unknown if it has none; erased if it was erased.
        decision: as it was made.
        value: what it is learned with, null if it is not.
        late: whether its reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        forgotten: whether its retention has ended.
        incomplete: whether records of it may be missing here, for old ones were trimmed.
        due: when its window ends.
        records: all of them, in their order.
        request: what it was chosen from, if that was kept.
        subject: whom it was made for.
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
    subject: str | None = None

    @classmethod
    def of(cls, history: DecisionHistory) -> DecisionDetails:
        """Return the history of a decision as it is sent."""
        entry, event, kept = history.entry, history.decision, history.request
        chosen = None
        if event is not None:
            chosen = Chosen(
                **msgspec.structs.asdict(Decided.of(event)),
                x=event.x.tolist(),
                activated=event.activated,
                source=event.source,
            )
        return cls(
            history.id,
            history.state,
            chosen,
            history.value,
            late=entry is not None and entry.late,
            conflict=entry is not None and entry.conflict,
            forgotten=history.forgotten,
            incomplete=history.incomplete,
            due=None if entry is None else entry.due,
            records=[Happened.of(*record) for record in history.records],
            request=None if kept is None else Offered(**KeptRequest.read(kept, event).to_dict()),
            subject=history.subject,
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
        status: ready; no model: none was published yet; stale: a model is too old; draining: it
            will stop soon; journal replaced: the file of SQLite was removed or replaced, and
            nothing is accepted until the service is restarted.
        stale_bandits: the bandits without a model, or whose model is too old; empty if the service
            needs keys.
        other_features: the bandits whose newest model is for other features, so that they decide
            with their last one; empty if the service needs keys.
        stale: the number of stale bandits.
    """

    status: str
    stale_bandits: list[str] = []
    other_features: list[str] = []
    stale: int = 0


class BanditState(Answer, frozen=True):
    """The state of a bandit, by the model that decides now.

    Attributes:
        bandit: its name.
        policy: how it chooses.
        version: records that the model has learned from.
        observations: rewards it knows.
        pending: decisions whose reward is outstanding, those of this decider included.
        model_age_seconds: age of the newest model; null before the first one.
        mode: how it decides: learn, freeze, baseline or off.
        actions: the state of each action that the features declare, or that was ever changed.
        issues: what was wrong with rewards and values of fields, the most frequent first. Those of
            the journal are as of the last model; refused rewards and fields are of this process.
        chosen_version: the version of the model that an operator chose; null: the newest decides.
    """

    bandit: str
    policy: str
    version: int
    observations: int
    pending: int
    model_age_seconds: float | None
    mode: str
    actions: list[ActionState]
    issues: list[Issue] = []
    chosen_version: int | None = None


class BanditHealth(BanditState, frozen=True, kw_only=True):
    """The same, with what this decider has done.

    Attributes:
        stale: whether its model is too old.
        decisions: made by this process.
        rewards: accepted by this process.
        url: of its routes.
    """

    stale: bool
    decisions: int
    rewards: int
    url: str


class Bandits(msgspec.Struct, frozen=True):
    """The bandits of this service that a key may read.

    Attributes:
        bandits: by name.
    """

    bandits: list[BanditHealth]


class ReportPage(msgspec.Struct, frozen=True):
    """The report of a bandit, for the console.

    Attributes:
        status: ready; computing: ask again in a few seconds; unavailable: there is none.
        why: there is none, or no newer one; empty otherwise.
        page: its HTML and its charts, null before the first.
    """

    status: str
    why: str
    page: Any


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


class Models(msgspec.Struct, frozen=True):
    """The models that an operator can choose.

    Attributes:
        models: the newest first.
    """

    models: list[ModelState]


class ModelSwitch(msgspec.Struct, frozen=True):
    """Which model decides within a second.

    Attributes:
        version: as asked for.
        reason: likewise.
        at: when it was chosen.
    """

    version: Version
    reason: str
    at: datetime


class Erasure(msgspec.Struct, frozen=True):
    """What was erased counts as if it had never been.

    ``belated journal erase --overwrite`` then destroys the bytes.

    Attributes:
        decisions: how many decisions were erased.
    """

    decisions: int


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem, to be answered as application/problem+json.

    Attributes:
        title: what kind it is.
        status: the HTTP status.
        detail: what is wrong here, and what to do.
        type: names the kind.
    """

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"
