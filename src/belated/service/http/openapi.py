"""The OpenAPI document, generated from the routes and the message types."""

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
#: Names and descriptions of the documented problems, by HTTP status.
_PROBLEMS = {
    400: ("Malformed", "The request is not JSON, or contains text that is not UTF-8."),
    401: ("Unauthorized", "The API key is missing or not valid."),
    403: (
        "Forbidden",
        "The key does not allow the request, the token does not allow the reward, or the request "
        "comes from a web page whose origin is not allowed.",
    ),
    404: ("NotFound", "The bandit does not exist."),
    413: ("TooLarge", "The body is too large."),
    415: ("Unsupported", "The body is compressed, or not declared as application/json."),
    422: ("Invalid", "The request is not valid; the detail says why. Nothing was stored."),
    429: (
        "TooOften",
        "The key or the token has exceeded its rate limit, or the decision is unknown and too many "
        "events are waiting for unknown decisions. Retry later.",
    ),
    500: ("Failed", "Internal error."),
    503: ("Unavailable", "The journal is unavailable. Retry after a second."),
}
_KEY_PROBLEMS = frozenset({401, 429})
_ATTRIBUTE = re.compile(r"^    (\w+): (.+\n?(?:     .*\n?)*)", re.MULTILINE)
#: The word None in docstrings, which the document renders as null.
_NONE = re.compile(r"\bNone\b")
_PARAMETERS = {
    "bandit": "The name of the bandit.",
    "id": "The id of the decision. Percent-encode everything but letters, digits and -._~.",
    "subject": "The subject of the decisions. Percent-encode everything but letters, digits and "
    "-._~.",
    "at": "The time of the event. Defaults to now.",
}
#: Schemas of the path parameters.
_PATH_PARAMETERS = {
    "bandit": {"type": "string", "minLength": 1},
    "id": msgspec.json.schema(Id),
    "subject": msgspec.json.schema(Subject),
}


def describe(routes: Sequence[Route], *, keys: bool, tokens: bool) -> dict[str, Any]:
    """Build the OpenAPI document.

    Args:
        routes: Routes to describe.
        keys: Whether the service requires API keys.
        tokens: Whether the service issues reward tokens.
    """
    types = [Problem]
    for route in routes:
        types += [kind for kind in (route.body, route.answer, *route.also.values()) if kind]
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    for name, schema in components.items():
        _add_descriptions(schema, getattr(messages, name))
    paths: dict[str, dict[str, Any]] = {}
    all_problems: set[int] = set()
    for route in routes:
        problems = _problems_of(route, keys)
        all_problems |= problems
        operation = _operation(route, routes, problems)
        if keys:
            operation["security"] = _security(route, tokens)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    document: dict[str, Any] = {
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
                name: _response(description, Problem, "application/problem+json")
                for status, (name, description) in _PROBLEMS.items()
                if status in all_problems
            },
        },
    }
    if keys:
        document["components"]["securitySchemes"] = {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "blt_…",
                "description": f"An API key with the scope of the operation: {', '.join(SCOPES)}.",
            }
        }
    return document


def _problems_of(route: Route, keys: bool) -> set[int]:
    """Return the statuses of problems in the responses of a route."""
    problems: set[int] = set()
    if "{bandit}" in route.path or route.body is not None:
        has_input = route.body is not None or "{id}" in route.path or "{subject}" in route.path
        problems |= _PROBLEMS.keys() - _KEY_PROBLEMS - (set() if has_input else {422})
    if route.status == 202:  # the event may be for an unknown decision
        problems.add(429)
    if keys and route.scope is not None:
        problems |= _KEY_PROBLEMS | {403}
    return problems


def _security(route: Route, tokens: bool) -> list[dict[str, list[str]]]:
    if route.scope is None:
        return []
    by_token = tokens and route.scope == "reward" and route.body is not SubjectRewardsBody
    alternatives: list[dict[str, list[str]]] = [{}] if by_token else []
    return [{"key": [route.scope]}, *alternatives]  # a token in the body can replace the key


def _operation(route: Route, routes: Sequence[Route], problems: set[int]) -> dict[str, Any]:
    about_bandit = "{bandit}" in route.path
    responses = {route.status: _response("Success.", route.answer, route.content)}
    if about_bandit and (links := _links(route, routes)):
        responses[route.status]["links"] = links
    for status, kind in route.also.items():
        responses[status] = _response("Unavailable.", kind)
    for status in problems:
        responses[status] = {"$ref": f"#/components/responses/{_PROBLEMS[status][0]}"}
    operation: dict[str, Any] = {
        "operationId": _name(route),
        "summary": route.summary,
        "tags": ["bandits" if about_bandit else "service"],
        "responses": {str(status): response for status, response in sorted(responses.items())},
    }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", route.path)
    ] + [
        {"name": name, "in": "query", "schema": msgspec.json.schema(kind)}
        for name, kind in route.query.items()
    ]
    if parameters:
        operation["parameters"] = [
            parameter | {"description": _PARAMETERS[str(parameter["name"])]}
            for parameter in parameters
        ]
    if route.body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _schema(route.body)}},
        }
    return operation


def _links(route: Route, routes: Sequence[Route]) -> dict[str, Any]:
    """Return links from the decision in a response to the routes that accept its id."""
    pointer = _pointer_to_id(route.answer)
    if pointer is None:
        return {}
    parameters = {"bandit": "$request.path.bandit", "id": f"$response.body#{pointer}"}
    return {
        _name(target): {"operationId": _name(target), "parameters": parameters}
        for target in routes
        if "{id}" in target.path
    }


def _pointer_to_id(kind: Any) -> str | None:
    """Return the JSON pointer to the first decision id in a response; None if there is none."""
    if kind is ManyDecided:
        return "/decisions/0/id"
    return "/id" if "id" in kind.__struct_fields__ else None


def _name(route: Route) -> str:
    return route.name or str(route.handler.__name__).strip("_")


def _response(description: str, kind: Any, content: str = "application/json") -> dict[str, Any]:
    media = {} if kind is None else {"schema": _schema(kind)}
    return {"description": description, "content": {content.partition(";")[0]: media}}


def _schema(kind: Any) -> dict[str, str]:
    return {"$ref": _REF.format(name=kind.__name__)}


def _add_descriptions(schema: dict[str, Any], kind: type) -> None:
    """Add descriptions of a type and its fields to its schema, taken from its docstring."""
    for cls in reversed(kind.__mro__):  # fields are inherited
        summary, _, attributes = (inspect.getdoc(cls) or "").partition("\n\nAttributes:\n")
        schema["description"] = " ".join(summary.split())
        for name, text in _ATTRIBUTE.findall(attributes):
            if name in schema.get("properties", {}):
                schema["properties"][name]["description"] = _NONE.sub(
                    "null", " ".join(text.split())
                )
