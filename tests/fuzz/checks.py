"""Loaded by schemathesis: checks that know what no schema can say of the service."""

from __future__ import annotations

import itertools
import json
import os
import re
from typing import Any

import requests
import schemathesis

#: For what a request that conforms to the document may be refused.
UNSAYABLE = re.compile(
    "|".join(
        [
            r"got \d+ actions for \d+ rows",
            r"the id .* was used for another decision",
            r"an id occurs twice in this request",
            r"`at` is .*, .* ahead of this machine's clock",
            r"`at` is .*, .* before its decision at",
            r"which is before the year 2000",
            r"the (id|part|subject|event_id) .* has \d+ bytes or more",  # it counts characters
            r"`sticky` must be a duration(, such as 7d, 12h, 30m or 45s| above 0)",
            r"`sticky` requires `subject`",
            r"sticky is .*, but batches do not support sticky decisions",
            r"the id .* belongs to a different partition than the subject",
            r"the action .* is offered twice",  # 1 and 1.0 are one number, and then two texts
            r"Expected `int.*`, got `float`",  # for a schema 1.0 is a whole number
            r"context age × action price of action .* must be from -1e\+08 to 1e\+08",
            r"a finite number from -1e\+08 to 1e\+08, got -?10000000\d\.?\d*",  # 1e8 as float32
            r"the token is not valid for this decision",
            r"does not grant scope .* on all bandits",  # the key is for those that are fuzzed
            r"`until` must be in the future and after the start of the pause",
            r"only a pause can have a start and an end",
            r"the action .* is retired: resume it first",
            r"the reward .* is outside \[",  # of the bandit: its family says
            r"`fallback` requires `id`",
            r"there is no model version -?\d+; known versions",
            r"fallback\.action is .*, which is not one of the actions",
            r"this bandit has no features: send `rows` instead of `context`",
            r"the token has expired",  # one that was answered may be sent too late
        ]
    ),
    re.DOTALL,
)
#: Who may not ask, where the service asks for keys; none where it does not.
STRANGERS = json.loads(os.environ.get("BELATED_FUZZ_STRANGERS", "null"))
_turns = itertools.count()
_session = requests.Session()


@schemathesis.check
def accepted_or_explained(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """What conforms to the document is taken, or refused for a reason that no schema can say."""
    conforms = case.meta is not None and case.meta.generation.mode.is_positive
    # Methods that are not there are tried with data that conforms, too.
    if conforms and 400 <= response.status_code < 500 and response.status_code != 405:
        problem = response.json()
        if problem.get("errorCode") in ("INVALID_CONTEXT", "TARGETING_KEY_MISSING"):
            return  # the features of a bandit say what a flag's context needs
        detail = problem["detail"]
        assert UNSAYABLE.search(detail), f"refused with {response.status_code}: {detail}"


@schemathesis.check
def strangers_are_kept_out(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """The same bytes from someone who may not: 401 or 403, whatever they are."""
    security = case.operation.definition.raw.get("security")
    if STRANGERS is None or not security:
        return
    (scope,) = security[0]["key"]
    about_bandit = "{bandit}" in case.operation.path
    keys = STRANGERS["keys"] | {"lesser": STRANGERS["without"][scope]}
    if about_bandit:
        clients = [list(keys)[next(_turns) % len(keys)]]  # one after the other
    else:  # there is little to vary; and most of it takes the scope alone
        clients = [client for client in keys if client != "foreign"]
    for client in clients:
        request = response.request.copy()
        request.headers.pop("authorization", None)
        if keys[client] is not None:
            request.headers["authorization"] = f"Bearer {keys[client]}"
        for name in STRANGERS["known"]:
            for prefix in ("/v1/", "/flags/"):
                url = str(request.url)
                request.url = url.replace(f"{prefix}{name}", f"{prefix}{STRANGERS['place']}", 1)
        result = _session.send(request, timeout=30)
        expected = {403} if client in ("foreign", "lesser") else {401}
        if response.status_code in (400, 404, 405):  # no such route, or no text: nobody is asked
            expected.add(response.status_code)
        if client == "nobody" and scope == "reward":  # a token may be in the body: it is read first
            expected |= {400, 403, 413, 415, 422}
        assert result.status_code in expected, f"{client} was answered with {result.status_code}"
