"""Writes the reference pages that are made from the code: ``python docs/generate.py``.

They are kept in the repository, so that they can be read there; a test fails while one is not what
this script would write.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from belated.cli.main import command_line
from belated.service.http.app import SERVICE_ROUTES
from belated.service.http.openapi import describe
from belated.service.http.routes import BANDIT_ROUTES

FOLDER = Path(__file__).parent / "reference"
#: So that the width of a terminal does not matter.
WIDTH = 88


def cli() -> str:
    """The page of the commands."""
    parts = [
        "# Commands: `belated`",
        "Each command says what it takes with `--help`, as below. The exit code is 0 where all is"
        " well, 1 where a command looked and found something wrong, and 2 where it could not do"
        " what was asked; then one line on stderr says why.",
    ]
    for name, parser in _commands(command_line(), "belated"):
        parser.formatter_class = _fixed(parser.formatter_class)
        shown = re.sub(r"\n{3,}", "\n\n", parser.format_help()).rstrip()
        parts += [f"## {name}", f"```text\n{shown}\n```"]
    return "\n\n".join(parts) + "\n"


def _fixed(made_by: Any) -> Any:
    return lambda prog: made_by(prog, width=WIDTH)


def _commands(
    parser: argparse.ArgumentParser, name: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """All commands that do something, with their names."""
    groups = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not groups:
        yield name, parser
    for group in groups:
        for word, one in group.choices.items():
            yield from _commands(one, f"{name} {word}")


def http() -> str:
    """The page of the routes."""
    whole = describe([*BANDIT_ROUTES, *SERVICE_ROUTES], keys=True, tokens=True)
    parts = [
        "# HTTP: routes, fields and statuses",
        "`GET /openapi.json` has the same for programs. A field with a star must be there. Times"
        " are ISO 8601. An error is a JSON object with `type`, `title`, `status` and `detail`"
        " (RFC 9457).",
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
    queries = [one["name"] for one in route.get("parameters", ()) if one["in"] == "query"]
    if queries:
        yield "After `?`: " + ", ".join(f"`{name}`" for name in queries) + "."
    problems = [status for status, answer in route["responses"].items() if "$ref" in answer]
    for status, answer in route["responses"].items():
        if status not in problems:
            yield f"{status}: {_contents(answer) or 'nothing'}."
    if problems:
        yield f"[Else](#statuses): {', '.join(problems)}."


def _contents(message: dict[str, Any]) -> str:
    """What a body or an answer holds."""
    found = []
    for kind, one in message.get("content", {}).items():
        found.append(_named(one.get("schema", {})) or f"`{kind}`")
    return " or ".join(found)


def _statuses(whole: dict[str, Any]) -> Iterator[str]:
    yield "## Statuses"
    numbers = {
        answer["$ref"].rpartition("/")[2]: status
        for methods in whole["paths"].values()
        for route in methods.values()
        for status, answer in route["responses"].items()
        if "$ref" in answer
    }
    rows = ["| status | |", "|---|---|"]
    for name, one in whole["components"]["responses"].items():
        rows.append(f"| {numbers[name]} | {one['description']} |")
    yield "\n".join(rows)


def _fields(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    if "description" in schema:
        yield schema["description"].partition("\n")[0]
    properties = schema.get("properties", {})
    if properties:
        must = set(schema.get("required", ()))
        rows = ["| field | type | |", "|---|---|---|"]
        for field, one in properties.items():
            star = "*" if field in must else ""
            said = " ".join(one.get("description", "").split())
            rows.append(f"| `{field}`{star} | {_named(one)} | {said} |")
        yield "\n".join(rows)


def _named(schema: dict[str, Any]) -> str:
    """The type of a value, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_named(one) for one in schema["anyOf"])
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_named(schema.get('items', {})) or 'anything'}"
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("format") == "date-time":
        return "time"
    return str(kind)


PAGES = {"cli.md": cli, "http.md": http}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"docs/reference/{name} written")
