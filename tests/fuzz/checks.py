"""Loaded by schemathesis: a check that knows what no schema can say of the service."""

from __future__ import annotations

import re
from typing import Any

import schemathesis

#: For what a request that conforms to the document may be refused.
UNSAYABLE = re.compile(
    "|".join(
        [
            r"\d+ actions for \d+ rows",
            r"the id .* was used for another decision",
            r"an id stands twice in this request",
            r"which is more than a day ahead of now",
            r"the (id|part) .* has \d+ bytes or more",  # a schema counts characters
            r"the action .* is offered twice",  # 1 and 1.0 are one number, and then two texts
            r"Expected `int.*`, got `float`",  # for a schema 1.0 is a whole number
            r"context age × action price of action .* at most 1e\+08 in size",
            r" is -?10000000\d\.?\d*: a finite number of at most 1e\+08",  # 1e8 as a float32
        ]
    ),
    re.DOTALL,
)


@schemathesis.check
def accepted_or_explained(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """What conforms to the document is taken, or refused for a reason that no schema can say."""
    conforms = case.meta is not None and case.meta.generation.mode.is_positive
    # Methods that are not there are tried with data that conforms, too.
    if conforms and 400 <= response.status_code < 500 and response.status_code != 405:
        detail = response.json()["detail"]
        assert UNSAYABLE.search(detail), f"refused with {response.status_code}: {detail}"
