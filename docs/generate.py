"""Write the reference pages that are generated from the code: ``python docs/generate.py``.

They are committed, so that people can read them in the repository; a test fails if one of them is
out of date.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from belated.cli.main import command_line
from belated.core.outcomes import json_schema
from belated.service.http.app import ROUTES
from belated.service.http.openapi import describe

FOLDER = Path(__file__).parent / "reference"
#: The width of help texts, whatever the width of the terminal.
WIDTH = 88


def cli() -> str:
    """Return the page of the commands."""
    parts = [
        "# Commands: `belated`",
        "`--help` prints each command's arguments, as shown below. The exit code is 0 on success, 1"
        " if a check found a problem, and 2 if the command failed; a line on stderr then gives the"
        " reason.",
    ]
    for name, parser in _commands(command_line(), "belated"):
        parser.formatter_class = _fixed(parser.formatter_class)
        shown = re.sub(r"\n{3,}", "\n\n", parser.format_help()).rstrip()
        parts += [f"## {name}", f"```text\n{shown}\n```"]
    return "\n\n".join(parts) + "\n"


def _fixed(formatter: Any) -> Any:
    return lambda prog: formatter(prog, width=WIDTH)


def _commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield all commands, without groups, with their names."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    if not groups:
        yield name, parser
    for group in groups:
        for word, command in group.choices.items():
            yield from _commands(command, f"{name} {word}")


def http() -> str:
    """Return the page of the routes."""
    whole = describe(ROUTES, keys=True, tokens=True)
    parts = [
        "# HTTP: routes, fields and statuses",
        "`GET /openapi.json` returns the same information as an OpenAPI document. An asterisk marks"
        " required fields. Times are ISO 8601. Errors are JSON objects with `type`, `title`,"
        " `status` and `detail` (RFC 9457).",
    ]
    for path, methods in whole["paths"].items():
        for method, route in methods.items():
            parts += list(_route(path, method.upper(), route))
    parts += list(_statuses(whole))
    parts.append("## Fields")
    for name, schema in sorted(whole["components"]["schemas"].items()):
        parts += list(_fields(name, schema))
    return "\n\n".join(parts) + "\n"


def _route(path: str, method: str, route: dict[str, Any]) -> Iterator[str]:
    yield f"## {method} {path}"
    yield f"{route['summary']}."
    if (body := route.get("requestBody")) is not None:
        yield f"Body: {_contents(body)}."
    parameters = route.get("parameters", ())
    queries = [parameter["name"] for parameter in parameters if parameter["in"] == "query"]
    if queries:
        yield "Query parameters: " + ", ".join(f"`{name}`" for name in queries) + "."
    problems = [status for status, response in route["responses"].items() if "$ref" in response]
    for status, response in route["responses"].items():
        if status not in problems:
            yield f"{status}: {_contents(response) or 'no body'}."
    if problems:
        yield f"[Errors](#statuses): {', '.join(problems)}."


def _contents(message: dict[str, Any]) -> str:
    """Return the types of a request or response body."""
    contents = message.get("content", {}).items()
    return " or ".join(_named(body.get("schema", {})) or f"`{kind}`" for kind, body in contents)


def _statuses(whole: dict[str, Any]) -> Iterator[str]:
    yield "## Statuses"
    numbers = {
        response["$ref"].rpartition("/")[2]: status
        for methods in whole["paths"].values()
        for route in methods.values()
        for status, response in route["responses"].items()
        if "$ref" in response
    }
    rows = ["| status | meaning |", "|---|---|"]
    for name, response in whole["components"]["responses"].items():
        rows.append(f"| {numbers[name]} | {response['description']} |")
    yield "\n".join(rows)


def _fields(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if "description" in schema:
        yield schema["description"].partition("\n")[0]
    properties = schema.get("properties", {})
    if properties:
        required = set(schema.get("required", ()))
        rows = ["| field | type | meaning |", "|---|---|---|"]
        for field, value in properties.items():
            star = "*" if field in required else ""
            text = " ".join(value.get("description", "").split())
            rows.append(f"| `{field}`{star} | {_named(value)} | {text} |")
        yield "\n".join(rows)


def _named(schema: dict[str, Any]) -> str:
    """Return the type of a value in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_named, schema["anyOf"]))
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_named(schema.get('items', {})) or 'anything'}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "date-time":
        return "time"
    return str(kind)


def outcomes() -> str:
    """Return the page of the message about an outcome."""
    schema = json_schema()
    schema["description"] = ""
    parts = [
        "# Outcomes: fields of the message and columns of the view",
        "A learner with `outcomes = true` stores one message per decision"
        " ([how to read them](../howto/outcomes.md)). A message is a JSON object; fields without a"
        " value are left out. An asterisk marks required fields; the message of an erased decision"
        " has no others. Times are RFC 3339 in UTC. The {download}`JSON Schema"
        " <outcome.schema.json>` defines the same fields. [Exports](../howto/export.md) use the"
        " same names.",
        *list(_fields("Fields", schema))[2:],
        "The view `outcomes` in PostgreSQL and SQLite also has the columns `bandit` and"
        " `partition`. Fields that are left out of the message are `NULL` in the view, except"
        " `group` (an empty text), `late` and `conflict` (false).",
    ]
    return "\n\n".join(parts) + "\n"


def outcome_schema() -> str:
    """Return the JSON Schema of the message about an outcome."""
    return json.dumps(json_schema(), indent=2) + "\n"


PAGES = {
    "cli.md": cli,
    "http.md": http,
    "outcome.schema.json": outcome_schema,
    "outcomes.md": outcomes,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"docs/reference/{name} written")
