"""The OpenAPI document: made from the routes and the types that serve them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from belated import __version__
from belated.service.http.routes import Route
from belated.wire import messages
from belated.wire.keys import SCOPES
from belated.wire.messages import Id, ManyDecided, Problem, Subject, SubjectRewardsBody

_REF = "#/components/schemas/{name}"
#: By status, the name of a problem in the document, and what it means.
_PROBLEMS = {
    400: ("Malformed", "The request is no JSON, or holds text that is not UTF-8."),
    401: ("Unauthorized", "There is no key, or it is not valid."),
    403: (
        "Forbidden",
        "The key is not for this, the token is not for this reward, or a browser sends it for a "
        "page whose origin is not listed.",
    ),
    404: ("NotFound", "There is no such bandit."),
    413: ("TooLarge", "The body is too large."),
    415: ("Unsupported", "The body is compressed, or not declared as application/json."),
    422: ("Invalid", "Something in the request is wrong: see the detail. Nothing was stored."),
    429: (
        "TooOften",
        "The key or the token has exceeded its rate, or the decision is unknown and "
        "too many events wait for unknown decisions. Retry later.",
    ),
    500: ("Failed", "Something went wrong in the service."),
    503: ("Away", "The journal is unavailable. Retry after a second."),
}
_OF_KEYS = frozenset({401, 429})
_ATTRIBUTE = re.compile(r"^    (\w+): (.+\n?(?:     .*\n?)*)", re.MULTILINE)
_PARAMETERS = {
    "bandit": "The name of the bandit.",
    "id": "Of the decision; what is not a letter, a digit or one of -._~ is percent-encoded.",
    "subject": "As its decisions name it, percent-encoded in the same way.",
    "at": "When it happened; now if it is not given.",
}
#: Parameters of a path.
_PARTS = {
    "bandit": {"type": "string", "minLength": 1},
    "id": msgspec.json.schema(Id),
    "subject": msgspec.json.schema(Subject),
}


def describe(routes: Sequence[Route], *, keys: bool, tokens: bool) -> dict[str, Any]:
    """Return the document of some routes.

    Args:
        routes: to be described.
        keys: whether the service needs keys.
        tokens: whether it makes tokens of rewards.
    """
    types = [Problem]
    for route in routes:
        types += [one for one in (route.body, route.answer, *route.also.values()) if one]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    for name, schema in components.items():
        _explain(schema, getattr(messages, name))
    paths: dict[str, dict[str, Any]] = {}
    refusals: set[int] = set()  # of all routes
    for route in routes:
        refused = _refusals(route, keys)
        refusals |= refused
        operation = _operation(route, routes, refused)
        if keys:
            operation["security"] = _security(route, tokens)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "belated",
            "summary": "Contextual bandits for rewards that come late.",
            "description": "Every request is safe to retry. "
            "If a JSON key is repeated, the last value wins.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "version": __version__,
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                name: _response(why, Problem, "application/problem+json")
                for status, (name, why) in _PROBLEMS.items()
                if status in refusals
            },
        },
    }
    if keys:
        found["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "blt_…",
                "description": f"One with the scope named, of {', '.join(SCOPES)}.",
            }
        }
    return found


def _refusals(route: Route, keys: bool) -> set[int]:
    """Return the statuses of the problems that a route can answer with."""
    found: set[int] = set()
    if "{bandit}" in route.path:
        takes = route.body is not None or "{id}" in route.path or "{subject}" in route.path
        found |= _PROBLEMS.keys() - _OF_KEYS - (set() if takes else {422})
    if route.status == 202:  # an event that may wait for an unknown decision
        found.add(429)
    if keys and route.scope is not None:
        found |= _OF_KEYS | {403}
    return found


def _security(route: Route, tokens: bool) -> list[dict[str, list[str]]]:
    if route.scope is None:
        return []
    by_token = tokens and route.scope == "reward" and route.body is not SubjectRewardsBody
    instead: list[dict[str, list[str]]] = [{}] if by_token else []
    return [{"key": [route.scope]}, *instead]  # a token in the body will do


def _operation(route: Route, routes: Sequence[Route], refused: set[int]) -> dict[str, Any]:
    about_bandit = "{bandit}" in route.path
    responses = {route.status: _response("As asked for.", route.answer, route.content)}
    if about_bandit and (links := _links(route, routes)):
        responses[route.status]["links"] = links
    for status, kind in route.also.items():
        responses[status] = _response("Not now.", kind)
    for status in refused:
        responses[status] = {"$ref": f"#/components/responses/{_PROBLEMS[status][0]}"}
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "tags": ["bandits" if about_bandit else "service"],
        "responses": {str(status): one for status, one in sorted(responses.items())},
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PARTS[name]}
        for name in re.findall(r"{(\w+)}", route.path)
    ] + [
        {"name": name, "in": "query", "schema": msgspec.json.schema(kind)}
        for name, kind in route.query.items()
    ]
    if parameters:
        operation["parameters"] = [
            one | {"description": _PARAMETERS[str(one["name"])]} for one in parameters
        ]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(route.body)}},
        }
    return operation


def _links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """Link the decision in a response to the routes that take its id."""
    place = _place_of_id(route.answer)
    if place is None:
        return {}
    parameters = {"bandit": "$request.path.bandit", "id": f"$response.body#{place}"}
    return {
        _name(other): {"operationId": _name(other), "parameters": parameters}
        for other in routes
        if "{id}" in other.path
    }


def _place_of_id(kind: Any) -> str | None:
    """Return where a response has the id of a decision, or of the first, as a JSON pointer."""
    if kind is ManyDecided:
        return "/decisions/0/id"
    return "/id" if "id" in kind.__struct_fields__ else None


def _name(route: Route) -> str:
    return route.name or str(route.handler.__name__).strip("_")


def _response(why: str, kind: Any, content: str = "application/json") -> dict[str, Any]:
    media = {} if kind is None else {"schema": _schema(kind)}
    return {"description": why, "content": {content.partition(";")[0]: media}}


def _schema(kind: Any) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _explain(schema: dict[str, Any], kind: type) -> None:
    """Describe a type and its fields by the docstring of the type."""
    for one in reversed(kind.__mro__):  # those of its parents are its own too
        about, _, attributes = (inspect.getdoc(one) or "").partition("\n\nAttributes:\n")
        schema["description"] = " ".join(about.split())
        for name, text in _ATTRIBUTE.findall(attributes):
            if name in schema.get("properties", {}):
                schema["properties"][name]["description"] = " ".join(text.split())
