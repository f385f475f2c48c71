"""The OpenAPI document: whole, and about the routes that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from belated.service.http.app import SERVICE_ROUTES
from belated.service.http.openapi import describe
from belated.service.http.problems import ProblemError
from belated.service.http.routes import BANDIT_ROUTES, Route, find
from belated.wire.messages import Decided, DecisionRequest

ROUTES = (*BANDIT_ROUTES, *SERVICE_ROUTES)


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    """The document of a service with keys and tokens, which has most in it."""
    return describe(ROUTES, keys=True, tokens=True)


def everything_in(value: Any) -> Iterator[Any]:
    """A value, and all that is in it."""
    yield value
    if isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from everything_in(child)


def operations(described: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation of each."""
    return [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    ]


def find_scope(path: str, method: str) -> str | None:
    """What a key must be for."""
    scopes = {(route.path, route.method.lower()): route.scope for route in ROUTES}
    return scopes[path, method]


def test_it_is_json_of_openapi_3_1(described: dict[str, Any]) -> None:
    """The bytes that are served say the same."""
    served = msgspec.json.encode(describe(ROUTES, keys=True, tokens=True))
    assert msgspec.json.decode(served) == msgspec.to_builtins(described, str_keys=True)
    assert described["openapi"] == "3.1.0"
    assert {"title", "version"} <= described["info"].keys()


def test_every_route_is_documented_once(described: dict[str, Any]) -> None:
    """With a summary and a name of its own."""
    documented = operations(described)
    assert sorted((path, method.upper()) for path, method, _ in documented) == sorted(
        (route.path, route.method) for route in ROUTES
    )
    assert all(operation["summary"] for _, _, operation in documented)
    assert len({operation["operationId"] for _, _, operation in documented}) == len(ROUTES)


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    """And every schema is referred to."""
    references = {
        node["$ref"]
        for node in everything_in(described)
        if isinstance(node, dict) and "$ref" in node
    }
    for reference in references:
        target = described
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
    schemas = {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}
    assert schemas <= references


def test_every_field_is_explained(described: dict[str, Any]) -> None:
    """What the docstrings say of a field stands beside it, and not in the description of all."""
    for name, schema in described["components"]["schemas"].items():
        assert schema["description"], name
        assert "Attributes:" not in schema["description"]
    properties = described["components"]["schemas"]["DecisionRequest"]["properties"]
    assert set(properties) == set(DecisionRequest.__struct_fields__)
    assert all(field["description"] for field in properties.values())
    chosen = described["components"]["schemas"]["Chosen"]["properties"]
    assert chosen["propensity"]["description"].startswith("the probability with which the action")
    assert chosen["x"]["description"] == "the row of the chosen action."


def test_parameters_and_bodies(described: dict[str, Any]) -> None:
    """What stands in braces is a parameter; whoever takes a body says which."""
    for path, method, operation in operations(described):
        parameters = {
            (parameter["name"], parameter["in"]) for parameter in operation.get("parameters", [])
        }
        assert {(name, "path") for name in re.findall(r"{(\w+)}", path)} <= parameters
        assert ("requestBody" in operation) == (
            method in ("post", "put") and not path.endswith(("activation", "void"))
        )


def test_the_id_of_an_answer_leads_on(described: dict[str, Any]) -> None:
    """From whatever names a decision to all that can be asked of one, with what that needs."""
    paths = {operation["operationId"]: path for path, _, operation in operations(described)}
    leading = {"decide", "decide_many", "reward", "post_reward", "activate", "void", "story"}
    for _, _, operation in operations(described):
        links = [
            named_link
            for response in operation["responses"].values()
            for named_link in response.get("links", {}).items()
        ]
        assert bool(links) == (operation["operationId"] in leading)
        for name, link in links:
            assert link["operationId"] == name
            assert set(re.findall(r"{(\w+)}", paths[name])) == link["parameters"].keys()
        if links:
            assert dict(links).keys() == {name for name, path in paths.items() if "{id}" in path}


def test_problems_are_documented(described: dict[str, Any]) -> None:
    """Of keys where one is needed; of bandits that there is none, or that it cannot now."""
    for path, method, operation in operations(described):
        scope = find_scope(path, method)
        assert operation["security"][:1] == ([] if scope is None else [{"key": [scope]}])
        # Where a token will do; rewards of subjects have none.
        by_token = scope == "reward" and path != "/v1/{bandit}/rewards"
        assert ({} in operation["security"]) == by_token
        assert {"401", "403", "429"} & operation["responses"].keys() == (
            set() if scope is None else {"401", "403", "429"}
        )
        if "{bandit}" in path:
            assert {"400", "403", "404", "413", "415", "500", "503"} <= operation[
                "responses"
            ].keys()
        if "requestBody" in operation:
            assert {"400", "422"} <= operation["responses"].keys()
    problem = described["components"]["responses"]["Invalid"]["content"]
    assert list(problem) == ["application/problem+json"]


@pytest.mark.parametrize("tokens", [False, True])
def test_where_no_keys_are_asked_for_none_is_documented(tokens: bool) -> None:
    """A page can still be one that is not listed; nothing else is refused for who asks."""
    open_to_all = describe(ROUTES, keys=False, tokens=tokens)
    assert "securitySchemes" not in open_to_all["components"]
    for path, _, operation in operations(open_to_all):
        assert "security" not in operation
        statuses = {"401", "403"} & operation["responses"].keys()
        assert statuses == ({"403"} if "{bandit}" in path else set())
        # An event may wait for an unknown decision, of which there may be too many.
        assert ("429" in operation["responses"]) == ("202" in operation["responses"])
    named = open_to_all["components"]["responses"].keys()
    assert {"Unauthorized", "Forbidden"} & named == {"Forbidden"}


def test_without_tokens_every_reward_needs_a_key() -> None:
    """Where there are none, nothing can stand in place of a key."""
    for _, _, operation in operations(describe(ROUTES, keys=True, tokens=False)):
        assert {} not in operation["security"]


@pytest.mark.parametrize("route", BANDIT_ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_is_found_by_its_path(route: Route) -> None:
    """Whatever stands at the places in braces."""
    for id in ("a1", "batch", "{id}"):
        parts = route.path.format(bandit="b", id=id, subject=id).split("/")[3:]
        assert find(route.method, "offers", parts) is route


def test_what_is_not_there_is_said(described: dict[str, Any]) -> None:
    """404 for a path, 405 for a method, with those that there are."""
    with pytest.raises(ProblemError) as error:
        find("GET", "offers", ["elsewhere"])
    assert error.value.problem.status == 404
    with pytest.raises(ProblemError) as error:
        find("POST", "offers", ["decisions", "a1"])
    assert error.value.problem.status == 405
    assert error.value.headers == {"allow": "DELETE, GET"}


def test_a_body_is_read_as_its_route_says() -> None:
    """And none where there is none."""
    assert find("POST", "offers", ["decisions"]).parse(b'{"dim":1}') == DecisionRequest(dim=1)
    assert find("GET", "offers", []).parse(b"whatever") is None
    with pytest.raises(msgspec.ValidationError):
        find("POST", "offers", ["decisions"]).parse(b'{"dim":"1"}')
    assert find("POST", "offers", ["decisions"]).answer is Decided
