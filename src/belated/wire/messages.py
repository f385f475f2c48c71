"""Request and response bodies: the types behind the routes and the OpenAPI document."""

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

#: Maximum number of decision requests or rewards in a batch; larger ones would delay other callers.
MAX_BATCH = 1_000
#: Maximum size of a request body in bytes.
MAX_BODY_BYTES = 1 << 20
#: Maximum number of actions in a decision request.
MAX_ACTIONS = 1_000
#: Maximum number of fields in the context and the action records of a decision request.
MAX_FIELDS = 20_000
#: Maximum number of pairs of a context field with an action or action field, which may be crossed.
MAX_PAIRS = 1_000_000
#: Maximum number of values in the rows that features make for a decision request.
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
#: The time of an event. A number is always microseconds, never seconds or milliseconds.
EventTime = (
    Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, such as 2026-11-16T12:00:00Z")]
    | Annotated[
        int,
        msgspec.Meta(
            ge=MIN_MICROSECONDS, le=MAX_MICROSECONDS, description="microseconds since 1970"
        ),
    ]
)
#: The hint in the error for an invalid time.
TIME_HINT = "send RFC 3339 with its offset, such as 2026-11-16T12:00:00Z"


class Fallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action that a caller took by itself because the service was unavailable.

    Attributes:
        action: the action, one of those offered.
        at: when it was chosen.
    """

    action: Action | Name
    at: EventTime


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request to choose one of several actions.

    Attributes:
        rows: one row of numbers per action; or all rows concatenated as little-endian float32
            numbers, in base64.
        dim: numbers per row; with base64, pass it so that rows of another width are detected.
        context: the context of the decision, if the bandit has features; replaces rows.
        actions: the name of each action; or, if features read action records, names with a record
            each, null for the record in the catalogue. If omitted with a context, all actions of
            the features are offered.
        id: your own id for the decision: repeating it returns the same decision.
        first_attempt: true if the id is a new UUID that was never sent before. The service then
            skips the look-up of the id. A retry must not set it.
        activated: false if the reward window starts only with an activation.
        subject: the user or other subject that the decision is for; stored as given.
        sticky: a duration such as 1d, within which the subject gets its latest decision again. Not
            allowed in a batch.
        fallback: an action taken without the service. It is recorded as the decision, with
            propensity 1 and source fallback, unless the id already has a decision. Needs an id.
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
    """A batch of requests, each decided as if the preceding decisions were pending."""

    requests: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class RewardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reward of a decision, or one part of it.

    Attributes:
        value: the reward.
        at: when it happened; now by default.
        part: the name of this part, if the reward comes in several.
        revision: a higher revision of a part replaces the lower ones.
        token: the token of the decision, for callers without a key. Without a key, at, part and
            revision are not allowed.
    """

    value: Value
    at: EventTime | None = None
    part: Annotated[str, msgspec.Meta(max_length=128, extra_json_schema=_NO_NUL)] = ""
    revision: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    token: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class NamedReward(RewardBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reward with the id of its decision."""

    id: Id


class RewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of rewards."""

    rewards: Annotated[list[NamedReward], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class SubjectRewardBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A reward of a subject, credited to the latest decision for it at that time.

    Attributes:
        subject: the subject, as named in its decisions.
        value: the reward.
        event_id: an id of the event, such as an order number; each counts once.
        at: when it happened; now by default.
    """

    subject: Subject
    value: Value
    event_id: EventId
    at: EventTime | None = None


class SubjectRewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of rewards of subjects."""

    rewards: Annotated[list[SubjectRewardBody], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ModeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of the mode in which a bandit decides.

    Attributes:
        mode: learn: decide with the newest model. freeze: keep the current model. baseline: decide
            without a model. off: make no decisions; rewards are still accepted.
        reason: the reason, recorded in the journal.
    """

    mode: Literal["learn", "freeze", "baseline", "off"]
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The choice of a model for decisions.

    Attributes:
        version: a version from the list of models, or latest for always the newest.
        reason: the reason, recorded in the journal.
    """

    version: Version
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A change of the state of an action.

    Attributes:
        action: the name of the action, as text.
        change: pause: stop choosing it. resume: choose it again. retire: stop choosing it for good.
        reason: the reason, recorded in the journal.
        start: when a pause or retirement starts; null for now.
        until: when a pause ends; null if only resume ends it.
    """

    action: Annotated[Name, msgspec.Meta(min_length=1)]
    change: Change
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    start: EventTime | None = None
    until: EventTime | None = None


class Answer(Result, msgspec.Struct, frozen=True, omit_defaults=True):
    """Base class of the responses that a client returns."""


class Decided(Answer, frozen=True):
    """A decision, stored durably before the response was sent.

    Attributes:
        id: the id under which to report its reward.
        action: the name of the chosen action, or its index if actions have no names.
        index: the index of the chosen action among those offered.
        propensity: the probability with which the action was chosen. For off-policy estimates, use
            a policy with a ``floor`` or ``randomized=True``: otherwise it is 1, or too small to
            divide by.
        mean: the predicted reward of the action.
        model: the version of the model that chose.
        at: when the decision was made.
        token: a token that authorizes reporting the reward without a key, if the bandit issues
            them.
        slot: the slot for the next id that the client generates, so that decisions committed
            together are in one partition; only if there are several.
        repeated: true if this is an earlier decision, returned because it is sticky.
        fallback: true if the policy did not choose, because it failed or the service was
            unavailable.
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
    """A batch of decisions, in the order of the requests.

    Attributes:
        decisions: one decision per request.
        slot: the slot for the next generated ids, as in :class:`Decided`.
    """

    decisions: list[Decided]
    slot: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The event is durable; the details of the decision show how it was counted.

    The response is the same for every id, including unknown ones.
    """

    id: str
    status: str = "accepted"


class ManyAccepted(msgspec.Struct, frozen=True):
    """All events of the batch are durable."""

    accepted: int


class Chosen(Decided, frozen=True, kw_only=True):
    """A decision with its row.

    Attributes:
        x: the row of the chosen action.
        activated: false if the reward window starts only with an activation.
        source: what chose the action: policy, holdout, baseline or fallback.
    """

    x: list[float]
    activated: bool
    source: str


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record in the history of a decision.

    Attributes:
        kind: decision, activation, reward, void or subject_reward.
        recorded: when the journal received it.
        at: when it happened, by the reporter's clock.
        status: its effect on arrival: decided, rewarded, duplicate, revised, late, …
        value: the value of a reward.
        part: the part of a reward; for a reward of a subject, the id of its event.
        revision: the revision of a reward.
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
        """Return the response for a record."""
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
    """The alternatives that a decision was chosen from.

    Attributes:
        share: the probability with which requests were stored.
        actions: the names of the actions; null if they are indices.
        rows: the row of each action; null if features made the rows from context and records.
        context: the context, as it was sent.
        records: a record for each action, if any were sent.
        propensities: the probability of each action; null if the policy did not return them.
    """

    share: float
    actions: list[int | str] | None = None
    rows: list[list[float]] | None = None
    context: Any = None
    records: list[Any] | None = None
    propensities: list[float] | None = None


class DecisionDetails(Answer, frozen=True):
    """Everything the journal knows about one decision.

    Attributes:
        id: the decision's id.
        state: dormant, pending, rewarded, defaulted, censored or voided; unmatched if there are
            events but no known decision; unknown if there is nothing; erased if it was erased.
        decision: the decision, as it was made.
        value: the reward that the model learns; null if it learns none.
        late: whether the reward came after the window.
        conflict: whether two rewards or two decisions contradict each other.
        forgotten: whether the retention period has ended.
        incomplete: whether records may be missing because old ones were trimmed.
        due: when the reward window ends.
        records: all records, in order.
        request: the alternatives it was chosen from, if they were stored.
        subject: the subject that it was made for.
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
        """Return the response for the history of a decision."""
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
    """The process is alive."""

    status: str = "alive"


class Dead(msgspec.Struct, frozen=True):
    """The process must be restarted: some workers have ended or fail repeatedly.

    Attributes:
        dead_workers: the reason why each dead worker is considered dead, by name.
        status: dead.
    """

    dead_workers: dict[str, str]
    status: str = "dead"


class Ready(msgspec.Struct, frozen=True):
    """Whether the process should receive requests.

    Attributes:
        status: ready; no model: none was published yet; stale: a model is too old; draining: the
            process is about to stop; journal replaced: the SQLite file was removed or replaced, and
            nothing is accepted until a restart.
        stale_bandits: bandits without a model or with one that is too old; empty if the service
            requires keys.
        other_features: bandits whose newest model is for other features, so that they decide with
            an older one; empty if the service requires keys.
        stale: the number of stale bandits.
    """

    status: str
    stale_bandits: list[str] = []
    other_features: list[str] = []
    stale: int = 0


class BanditState(Answer, frozen=True):
    """The state of a bandit, as of the model in use.

    Attributes:
        bandit: the name of the bandit.
        policy: its policy.
        version: the number of records that the model includes.
        observations: the number of rewards that the model includes.
        pending: decisions whose reward is outstanding, including those of this process.
        model_age_seconds: the age of the newest model; null before the first one.
        mode: learn, freeze, baseline or off.
        actions: the state of each action that the features declare or that was ever changed.
        issues: problems with rewards and field values, most frequent first. Those in the journal
            are as of the last model; rejected rewards and fields are of this process.
        chosen_version: the version of the model that an operator chose; null if the newest decides.
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
    """The state of a bandit, with statistics of this process.

    Attributes:
        stale: whether the model is too old.
        decisions: decisions made by this process.
        rewards: rewards accepted by this process.
        url: the address of the bandit's routes.
    """

    stale: bool
    decisions: int
    rewards: int
    url: str


class Bandits(msgspec.Struct, frozen=True):
    """The bandits of this service that the key may read.

    Attributes:
        bandits: the bandits, sorted by name.
    """

    bandits: list[BanditHealth]


class ReportPage(msgspec.Struct, frozen=True):
    """The report of a bandit, for the console.

    Attributes:
        status: ready; computing: ask again in a few seconds; unavailable: there is no report.
        why: why there is no report or no newer one; empty otherwise.
        page: the HTML and the charts; null before the first report.
    """

    status: str
    why: str
    page: Any


class Switch(msgspec.Struct, frozen=True):
    """The mode in which a bandit decides, within a second.

    Attributes:
        mode: the requested mode.
        reason: the given reason.
        at: when it was changed.
    """

    mode: str
    reason: str
    at: datetime


class Models(msgspec.Struct, frozen=True):
    """The models that an operator can choose.

    Attributes:
        models: the models, newest first.
    """

    models: list[ModelState]


class ModelSwitch(msgspec.Struct, frozen=True):
    """The model with which a bandit decides, within a second.

    Attributes:
        version: the requested version.
        reason: the given reason.
        at: when it was chosen.
    """

    version: Version
    reason: str
    at: datetime


class Erasure(msgspec.Struct, frozen=True):
    """Erased decisions count as if they had never been made.

    To destroy the bytes as well, run ``belated journal erase --overwrite``.

    Attributes:
        decisions: the number of decisions erased.
    """

    decisions: int


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, sent as ``application/problem+json``.

    Attributes:
        title: the kind of problem.
        status: the HTTP status.
        detail: what is wrong, and what to do.
        type: a URI of the kind.
    """

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"


class EvaluationRequest(msgspec.Struct, frozen=True):
    """An evaluation of flags, as OpenFeature sends it.

    Attributes:
        context: Fields of the context. ``targetingKey`` is the subject; ``actions`` are the offered
            actions of a bandit whose features do not declare them.
    """

    context: dict[str, Any] = {}


class EvaluatedFlag(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A decision, as OpenFeature reads it; or, among several flags, why there is none.

    Attributes:
        key: Name of the bandit.
        value: Chosen action.
        variant: Chosen action, as text.
        reason: ``SPLIT``; or ``DEFAULT`` if the policy did not choose.
        metadata: Id of the decision, its propensity, the version of the model, and the reward token
            if the bandit issues tokens.
        errorCode: Error code of OpenFeature.
        errorDetails: What is wrong, and what to do.
    """

    key: str
    value: int | str | None = None
    variant: str = ""
    reason: str = ""
    metadata: dict[str, str | float] = {}
    error_code: str = ""
    error_details: str = ""


class EvaluationFailure(Problem, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A problem, with the fields that OpenFeature reads.

    Attributes:
        key: Name of the bandit; empty if the request was about several.
        errorCode: Error code of OpenFeature.
        errorDetails: What is wrong, and what to do.
    """

    key: str = ""
    error_code: str
    error_details: str


class EvaluatedFlags(msgspec.Struct, frozen=True):
    """The flags of all bandits whose actions are known.

    Attributes:
        flags: One for each bandit.
    """

    flags: list[EvaluatedFlag]
