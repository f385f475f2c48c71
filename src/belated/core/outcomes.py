"""The message that describes the outcome of a decision, as JSON."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

#: The state of a decision whose outcome has changed.
OutcomeState = Literal[
    "dormant", "pending", "rewarded", "defaulted", "censored", "voided", "erased"
]


class DecisionOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The outcome of a decision; fields without a value are omitted.

    Of several messages with the same id, the one with the greatest version counts. If the decision
    was erased, the message has only ``id``, ``version`` and ``state``.
    """

    id: Annotated[str, Meta(description="the id of the decision")]
    version: Annotated[
        int,
        Meta(description="increases with each change of the outcome; the greatest version counts"),
    ]
    state: Annotated[
        OutcomeState,
        Meta(
            description="the state of the decision; `pending` or `dormant` if it had an outcome "
            "that no longer counts"
        ),
    ]
    at: Annotated[
        datetime | None, Meta(description="when the decision was made, by the decider's clock")
    ] = None
    recorded: Annotated[
        datetime | None, Meta(description="when the journal received the decision")
    ] = None
    effective: Annotated[datetime | None, Meta(description="when the decision took effect")] = None
    subject: Annotated[str | None, Meta(description="the subject of the decision")] = None
    action: Annotated[int | str | None, Meta(description="the chosen action")] = None
    index: Annotated[
        int | None, Meta(description="the position of the action among the offered ones")
    ] = None
    propensity: Annotated[
        float | None, Meta(description="the probability of the action within its group")
    ] = None
    overall: Annotated[
        float | None,
        Meta(description="the probability of the action over all groups of a holdout"),
    ] = None
    mean: Annotated[
        float | None, Meta(description="the mean reward predicted when the action was chosen")
    ] = None
    model: Annotated[
        int | None, Meta(description="the version of the model that made the prediction")
    ] = None
    source: Annotated[
        str | None,
        Meta(description="what made the choice: `policy`, `holdout`, `baseline` or `fallback`"),
    ] = None
    group: Annotated[str, Meta(description="the group of a holdout")] = ""
    context: Annotated[Any, Meta(description="the context, if it is stored")] = None
    record: Annotated[
        Any, Meta(description="the fields of the chosen action, if they are stored")
    ] = None
    value: Annotated[float | None, Meta(description="the reward, or the default")] = None
    rewarded: Annotated[
        datetime | None, Meta(description="when the journal received the first reward")
    ] = None
    delay: Annotated[float | None, Meta(description="seconds from `effective` to `rewarded`")] = (
        None
    )
    late: Annotated[bool, Meta(description="whether the reward arrived after the window")] = False
    conflict: Annotated[
        bool, Meta(description="whether another record contradicts the decision")
    ] = False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of :class:`DecisionOutcome`."""
    _, definitions = msgspec.json.schema_components([DecisionOutcome])
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **definitions["DecisionOutcome"]}
