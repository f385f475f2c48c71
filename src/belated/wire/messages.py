"""Request and response bodies, used by the routes and the OpenAPI document."""

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

#: Maximum number of decision requests or rewards in a batch. A larger batch would delay others.
MAX_BATCH = 1_000
#: Maximum size of a request body in bytes.
MAX_BODY_BYTES = 1 << 20
#: Maximum number of actions in a decision request.
MAX_ACTIONS = 1_000
#: Maximum total number of fields in the context and action records of a decision request.
MAX_FIELDS = 20_000
#: Maximum number of (context field, action or action field) pairs, which features may cross.
MAX_PAIRS = 1_000_000
#: Maximum number of values in the rows that the features produce for a decision request.
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
#: The time of an event. Numbers are always in microseconds, never in seconds or milliseconds.
EventTime = (
    Annotated[datetime, msgspec.Meta(tz=True, description="RFC 3339, such as 2026-11-16T12:00:00Z")]
    | Annotated[
        int,
        msgspec.Meta(
            ge=MIN_MICROSECONDS, le=MAX_MICROSECONDS, description="microseconds since 1970"
        ),
    ]
)
#: The hint in errors about an invalid time.
TIME_HINT = "send RFC 3339 with its offset, such as 2026-11-16T12:00:00Z"


class Fallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action that a client chose itself because the service was unavailable.

    Attributes:
        action: the action, which must be one of those offered.
        at: when the action was chosen.
    """

    action: Action | Name
    at: EventTime


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request to choose one of several actions.

    Attributes:
        rows: one row of numbers per action, or all rows concatenated as base64-encoded
            little-endian float32 numbers.
        dim: numbers per row. Set it with base64 rows, so that the service detects rows of the
            wrong width.
        context: the context of the decision, if the bandit has features; replaces rows.
        actions: the name of each action. If the features read action records, an object that maps
            each name to its record, or to null to use the record in the catalogue. If omitted with
            a context, all actions that the features declare are offered.
        id: an id that you choose for the decision. Sending the same id again returns the same
            decision.
        first_attempt: true if the id is a new UUID that was never sent before. The service then
            skips looking it up. Do not set it in a retry.
        activated: false if the reward window starts only when the decision is activated.
        subject: the user or other subject that the decision is for; stored as given.
        sticky: a duration such as 1d, within which the subject gets its latest decision again. Not
            allowed in a batch.
        fallback: an action that was taken without the service. The service records it as the
            decision, with propensity 1 and source fallback, unless the id already has a decision.
            Requires an id.
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
    """A batch of decision requests, each decided as if the preceding decisions were pending."""

    requests: Annotated[list[DecisionRequest], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class RewardBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reward of a decision, or one part of the reward.

    Attributes:
        value: the reward.
        at: when the rewarded event happened; now by default.
        part: the name of this part, if the reward is reported in several parts.
        revision: a higher revision of a part replaces lower ones.
        token: the decision's token, for callers without a key. Callers without a key must not send
            at, part or revision.
    """

    value: Value
    at: EventTime | None = None
    part: Annotated[str, msgspec.Meta(max_length=128, extra_json_schema=_NO_NUL)] = ""
    revision: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] = 0
    token: Annotated[str, msgspec.Meta(max_length=256)] | None = None


class NamedReward(RewardBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A reward and the id of its decision."""

    id: Id


class RewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of rewards."""

    rewards: Annotated[list[NamedReward], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class SubjectRewardBody(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A reward for a subject, credited to the subject's latest decision at that time.

    Attributes:
        subject: the subject, as sent with the decision requests.
        value: the reward.
        event_id: an id of the rewarded event, such as an order number. Each event counts once.
        at: when the rewarded event happened; now by default.
    """

    subject: Subject
    value: Value
    event_id: EventId
    at: EventTime | None = None


class SubjectRewardsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A batch of rewards for subjects."""

    rewards: Annotated[list[SubjectRewardBody], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class ModeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change to a bandit's mode.

    Attributes:
        mode: learn: decide with the newest model. freeze: keep the current model. baseline: decide
            without a model. off: make no decisions; rewards are still accepted.
        reason: the reason for the change, recorded in the journal.
    """

    mode: Literal["learn", "freeze", "baseline", "off"]
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ModelBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model to use for decisions.

    Attributes:
        version: a version from the list of models, or latest to always use the newest model.
        reason: the reason for the choice, recorded in the journal.
    """

    version: Version
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class ActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A change to the state of an action.

    Attributes:
        action: the name of the action, as text.
        change: pause: stop choosing the action. resume: make it available again. retire: stop
            choosing it permanently.
        reason: the reason for the change, recorded in the journal.
        start: when a pause or retirement starts; null for now.
        until: when a pause ends; null to pause until resumed.
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
        id: the id of the decision. Use it to report the reward.
        action: the name of the chosen action, or its index if actions have no names.
        index: the index of the chosen action among those offered.
        propensity: the probability with which the action was chosen. For off-policy estimates, use
            a policy with a ``floor`` or ``randomized=True``. Otherwise the propensity is 1, or too
            small to divide by.
        mean: the predicted reward of the action.
        model: the version of the model that made the decision.
        at: when the decision was made.
        token: a token that authorizes reporting the reward without a key, if the bandit issues
            tokens.
        slot: the slot for the next id that the client generates, so that decisions committed
            together share a partition. Sent only if there are several partitions.
        repeated: true if this is an earlier decision, returned because it is sticky.
        fallback: true if the policy did not choose the action, because the policy failed or the
            service was unavailable.
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
        slot: the slot for the next ids that the client generates, as in :class:`Decided`.
    """

    decisions: list[Decided]
    slot: int | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The event is durable. The decision's details show how the event was counted.

    The response is the same for every id, even an unknown one.
    """

    id: str
    status: str = "accepted"


class ManyAccepted(msgspec.Struct, frozen=True):
    """All events of the batch are durable."""

    accepted: int


class Chosen(Decided, frozen=True, kw_only=True):
    """A decision with the row of the chosen action.

    Attributes:
        x: the row of the chosen action.
        activated: false if the reward window starts only when the decision is activated.
        source: what chose the action: policy, holdout, baseline or fallback.
    """

    x: list[float]
    activated: bool
    source: str


class Happened(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record in the history of a decision.

    Attributes:
        kind: decision, activation, reward, void or subject_reward.
        recorded: when the journal received the record.
        at: when the event happened, according to the reporter's clock.
        status: the effect of the record when it arrived: decided, rewarded, duplicate, revised,
            late, …
        value: the value of a reward.
        part: the part of a reward; for a subject's reward, the event id.
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
    """The actions that a decision was chosen from.

    Attributes:
        share: the probability with which a request was stored.
        actions: the names of the actions; null if actions have no names.
        rows: the row of each action; null if the features computed the rows from the context and
            records.
        context: the context, as sent.
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
    """Everything that the journal contains about one decision.

    Attributes:
        id: the decision's id.
        state: dormant, pending, rewarded, defaulted, censored or voided; unmatched if there are
            events but no known decision; unknown if there are no records; erased if the decision
            was erased.
        decision: the original decision.
        value: the reward that the model learns from; null if there is none.
        late: whether the reward arrived after the window had ended.
        conflict: whether two rewards or two decisions contradict each other.
        forgotten: whether the retention period has ended.
        incomplete: whether records may be missing because old ones were trimmed.
        due: when the reward window ends.
        records: all records of the decision, in order.
        request: the actions that the decision was chosen from, if they were stored.
        subject: the subject that the decision is for.
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
        entry, event, request = history.entry, history.decision, history.request
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
            request=None
            if request is None
            else Offered(**KeptRequest.read(request, event).to_dict()),
            subject=history.subject,
        )


class Alive(msgspec.Struct, frozen=True):
    """The process is alive."""

    status: str = "alive"


class Dead(msgspec.Struct, frozen=True):
    """The process must be restarted, because some workers have ended or fail repeatedly.

    Attributes:
        dead_workers: for each dead worker, by name, the reason why it is considered dead.
        status: always dead.
    """

    dead_workers: dict[str, str]
    status: str = "dead"


class Ready(msgspec.Struct, frozen=True):
    """The readiness of the process to receive requests.

    Attributes:
        status: ready; no model: no model has been published yet; stale: a model is too old;
            draining: the process is about to stop; journal replaced: the SQLite file was removed or
            replaced, and the process accepts nothing until it is restarted.
        stale_bandits: bandits whose model is missing or too old; empty if the service requires
            keys.
        other_features: bandits that use an older model, because the newest one was trained with
            different features; empty if the service requires keys.
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
        policy: the bandit's policy.
        version: the number of records that the model includes.
        observations: the number of rewards that the model includes.
        pending: the number of decisions whose reward is outstanding, including those that this
            process has made since.
        model_age_seconds: the age of the newest model; null before the first one.
        mode: learn, freeze, baseline or off.
        actions: the state of each action that the features declare or that was ever changed.
        issues: problems with rewards and field values, most frequent first. Issues in the journal
            are as of the last model; rejected rewards and field values are counted by this process
            only.
        chosen_version: the model version that an operator chose; null if the newest model is in
            use.
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
    """The state of a bandit, with counters of this process.

    Attributes:
        stale: whether the model is too old.
        decisions: the number of decisions made by this process.
        rewards: the number of rewards accepted by this process.
        url: the base URL of the bandit's routes.
    """

    stale: bool
    decisions: int
    rewards: int
    url: str


class Bandits(msgspec.Struct, frozen=True):
    """The bandits on this service that the key may read.

    Attributes:
        bandits: the bandits, sorted by name.
    """

    bandits: list[BanditHealth]


class ReportPage(msgspec.Struct, frozen=True):
    """A bandit's report, for the console.

    Attributes:
        status: ready; computing: retry in a few seconds; unavailable: there is no report.
        why: the reason why there is no report or no newer one; otherwise empty.
        page: the HTML and the charts; null until the first report is ready.
    """

    status: str
    why: str
    page: Any


class Switch(msgspec.Struct, frozen=True):
    """The new mode of a bandit, which takes effect within a second.

    Attributes:
        mode: the requested mode.
        reason: the reason for the change.
        at: when the mode was changed.
    """

    mode: str
    reason: str
    at: datetime


class Models(msgspec.Struct, frozen=True):
    """The models that an operator can choose from.

    Attributes:
        models: the models, newest first.
    """

    models: list[ModelState]


class ModelSwitch(msgspec.Struct, frozen=True):
    """The new choice of model, which takes effect within a second.

    Attributes:
        version: the requested version.
        reason: the reason for the choice.
        at: when the model was chosen.
    """

    version: Version
    reason: str
    at: datetime


class Erasure(msgspec.Struct, frozen=True):
    """The result of an erasure. Erased decisions count as if they had never been made.

    To destroy the stored bytes as well, run ``belated journal erase --overwrite``.

    Attributes:
        decisions: the number of decisions erased.
    """

    decisions: int


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, sent as ``application/problem+json``.

    Attributes:
        title: the kind of problem.
        status: the HTTP status.
        detail: what is wrong and how to fix it.
        type: a URI that identifies the kind of problem.
    """

    title: str
    status: int
    detail: str = ""
    type: str = "about:blank"


class EvaluationRequest(msgspec.Struct, frozen=True):
    """A request to evaluate one or all flags, as sent by OpenFeature providers.

    Attributes:
        context: the fields of the context. ``targetingKey`` is the subject. ``actions`` are the
            offered actions, for a bandit whose features do not declare them.
    """

    context: dict[str, Any] = {}


class EvaluatedFlag(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A decision as an OpenFeature flag, or, in a response with all flags, an error.

    Attributes:
        key: the name of the bandit.
        value: the chosen action.
        variant: the chosen action, as text.
        reason: ``SPLIT``, or ``DEFAULT`` if the policy did not choose the action.
        metadata: the id and propensity of the decision, the version of the model, and the reward
            token if the bandit issues tokens.
        errorCode: the OpenFeature error code.
        errorDetails: what is wrong and how to fix it.
    """

    key: str
    value: int | str | None = None
    variant: str = ""
    reason: str = ""
    metadata: dict[str, str | float] = {}
    error_code: str = ""
    error_details: str = ""


class EvaluationFailure(Problem, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """A problem, with the additional fields that OpenFeature requires.

    Attributes:
        key: the name of the bandit; empty if the request was for all flags.
        errorCode: the OpenFeature error code.
        errorDetails: what is wrong and how to fix it.
    """

    key: str = ""
    error_code: str
    error_details: str


class EvaluatedFlags(msgspec.Struct, frozen=True):
    """The flags for all bandits whose actions are known.

    Attributes:
        flags: one flag per bandit.
    """

    flags: list[EvaluatedFlag]
