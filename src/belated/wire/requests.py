"""What is sent over HTTP: the types behind the routes and the OpenAPI document."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from belated.core.inputs import MAX_ENTRY, MAX_REWARD
from belated.core.times import MAX_MICROSECONDS, MIN_MICROSECONDS
from belated.features.records import MAX_ID

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
# What stands in `extra_json_schema` is for readers of the document: others check it.
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
#: What is said of another one.
TIME_HINT = "send RFC 3339 with its offset, such as 2026-11-16T12:00:00Z"


class DecisionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Actions to choose from.

    Attributes:
        rows: a row of numbers for each action; or all of them as float32 numbers, row after row,
            little-endian, in base64.
        dim: how many numbers a row has: say it with base64, so that rows of another width are
            noticed.
        context: instead of rows, where the bandit has features.
        actions: a name for each action, needed with a context; or names with a record each, where
            the features read them.
        id: your own name for the decision: the same id again gives the same decision.
        first_attempt: true if the id is a new UUID that was never sent before: it is then not
            looked up, which is quicker. A retry must not say so.
        activated: false if the outcome clock starts only with an activation.
    """

    rows: Rows | Packed | None = None
    dim: int | None = None
    context: dict[str, Any] | list[float] | None = None
    actions: Actions | Records | None = None
    id: Id | None = None
    first_attempt: bool = False
    activated: bool = True


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


class ModeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a bandit is to decide from now on.

    Attributes:
        mode: learn: as usual. freeze: with the model of now, which does not change any more.
            baseline: without a model. off: not at all; rewards are taken.
        reason: why, for whoever asks later.
    """

    mode: Literal["learn", "freeze", "baseline", "off"]
    reason: Annotated[str, msgspec.Meta(max_length=1000)] = ""
