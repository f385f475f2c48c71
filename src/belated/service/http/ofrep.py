"""The OpenFeature Remote Evaluation Protocol (OFREP): a bandit as a feature flag.

Each bandit is a flag, its actions are the variants, and ``targetingKey`` is the subject of the
decision. The protocol has no route for outcomes, so clients report rewards to the bandit's routes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from belated.core.events import Decision
from belated.decider.requests import declared, in_context
from belated.exceptions import InvalidInput
from belated.service.access.tokens import RewardTokens
from belated.service.http.problems import ProblemError, problem_of
from belated.service.http.routes import JSON, Exchange, Route, decide, encode
from belated.service.serving.served_bandits import Repeated, ServedBandit
from belated.wire.messages import (
    DecisionRequest,
    EvaluatedFlag,
    EvaluatedFlags,
    EvaluationFailure,
    EvaluationRequest,
    Problem,
)

PREFIX = "/ofrep/v1/evaluate/flags"
#: How long a targeting key gets the same variant. A flag may be evaluated many times during one
#: visit, and must return the same variant each time.
STICKY = "1d"
#: OFREP error codes by HTTP status. All other statuses are general errors.
_CODES = {400: "PARSE_ERROR", 404: "FLAG_NOT_FOUND", 422: "INVALID_CONTEXT"}
_NO_KEY = "Targeting key missing"


def evaluate(
    bandit: ServedBandit, request: EvaluationRequest, activated: bool, done: Callable[[Any], None]
) -> None:
    """Evaluate a flag by making a decision. Without a targeting key, the decision is always new."""
    definition = bandit.definition
    if definition.features is None:
        raise InvalidInput("this bandit has no features, so it cannot be evaluated as a flag", None)
    context = dict(request.context)
    subject = context.pop("targetingKey", None)
    if subject is None and definition.subject is not None:
        subject = in_context(context, definition.subject)
    body = DecisionRequest(
        context=context,
        actions=context.pop("actions", None),
        subject=subject,
        sticky=None if subject is None else STICKY,
        activated=activated,
    )
    decide(bandit, body, done)


def flag_of(
    name: str, decisions: Sequence[Decision] | Repeated, tokens: RewardTokens | None
) -> EvaluatedFlag:
    """Convert a decision to an evaluated flag."""
    decision = decisions[0]
    metadata: dict[str, str | float] = {
        "decision": decision.id,
        "propensity": decision.propensity,
        "model": decision.model,
    }
    if tokens is not None:
        metadata["token"] = tokens.of(decision)
    reason = "DEFAULT" if decision.source == "fallback" else "SPLIT"
    return EvaluatedFlag(name, decision.action, str(decision.action), reason, metadata)


def failure_of(name: str, problem: Problem) -> EvaluationFailure:
    """Convert a problem to an OFREP failure, with status 400 instead of 422."""
    code = _CODES.get(problem.status, "GENERAL")
    return EvaluationFailure(
        problem.title,
        400 if problem.status == 422 else problem.status,
        problem.detail,
        key=name,
        error_code="TARGETING_KEY_MISSING" if problem.title == _NO_KEY else code,
        error_details=problem.detail or problem.title,
    )


def _evaluate(call: Exchange, request: EvaluationRequest) -> None:
    evaluate(call.bandit, request, True, call.finish)


def _evaluated(call: Exchange, decisions: Sequence[Decision] | Repeated) -> EvaluatedFlag:
    return flag_of(call.id, decisions, call.tokens)


def _evaluate_all(call: Exchange, request: EvaluationRequest) -> None:
    """Make a decision for each bandit whose actions are known, without activating them."""
    if "targetingKey" not in request.context:
        raise ProblemError(400, _NO_KEY, "send targetingKey in the context to identify the user")
    bandits = [
        (bandit, tokens)
        for bandit, tokens in call.bandits
        if declared(bandit.definition.features)
    ]  # fmt: skip
    flags: dict[str, EvaluatedFlag] = {}

    def add(name: str, tokens: RewardTokens | None, result: Any) -> None:
        if isinstance(result, Exception):
            failure = failure_of(name, problem_of(result)[0])
            flags[name] = EvaluatedFlag(
                name, error_code=failure.error_code, error_details=failure.error_details
            )
        else:
            flags[name] = flag_of(name, result, tokens)
        if len(flags) == len(bandits):
            _respond(call, EvaluatedFlags([flags[name] for name in sorted(flags)]))

    for bandit, tokens in bandits:
        finish = partial(add, bandit.definition.name, tokens)
        try:
            evaluate(bandit, request, False, finish)
        except Exception as error:
            finish(error)
    if not bandits:
        _respond(call, EvaluatedFlags([]))


def _respond(call: Exchange, flags: EvaluatedFlags) -> None:
    content = encode(flags)
    tag = f'"{hashlib.blake2b(content, digest_size=16).hexdigest()}"'
    call.headers = {**(call.headers or {}), "etag": tag}
    if tag.encode() in (candidate.strip() for candidate in call.none_match.split(b",")):
        call.connection.respond(call, 304, JSON, b"")
    else:
        call.connection.respond(call, 200, JSON, content)


EVALUATE = Route(
    "POST", f"{PREFIX}/{{bandit}}", _evaluate, "Evaluate a bandit as a flag (OpenFeature, OFREP)",
    EvaluatedFlag, 200, EvaluationRequest, scope="decide", render=_evaluated,
)  # fmt: skip
EVALUATE_ALL = Route(
    "POST", PREFIX, _evaluate_all,
    "Evaluate all bandits whose actions are known, without activating the decisions (OFREP)",
    EvaluatedFlags, 200, EvaluationRequest, scope="decide",
)  # fmt: skip
