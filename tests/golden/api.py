"""Write the public interface to a file, so that no change to it goes unnoticed.

``python -m tests.golden.api`` writes ``api.txt``: the names in the public modules with their
signatures, and the commands with their arguments. The texts of the commands' help are in
``docs/reference/cli.md``, which ``docs/generate.py`` writes.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from belated.cli.main import command_line

FILE = Path(__file__).with_suffix(".txt")
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "index.md"


def surface() -> str:
    """Return the lines of the golden file."""
    table = REFERENCE.read_text(encoding="utf-8").partition("## What is public")[2]
    modules = re.findall(r"^\| `(belated[.\w]*)` \|", table, re.MULTILINE)
    homes: dict[object, str] = {
        value: name for name, value in vars(builtins).items() if _defined_in(value, "builtins")
    }
    del homes[object]
    lines = list[str]()
    for module in map(importlib.import_module, [*modules, "belated.exceptions"]):
        names = _names(module)
        homes = {getattr(module, name): f"{module.__name__}.{name}" for name in names} | homes
        lines += [f"# {module.__name__}", *_describe(module, names, homes), ""]
    lines += ["# Commands", *_commands(command_line())]
    return "\n".join(lines) + "\n"


def _names(module: ModuleType) -> list[str]:
    defined = [name for name, value in vars(module).items() if _defined_in(value, module.__name__)]
    return sorted(getattr(module, "__all__", defined))


def _defined_in(value: object, module: str) -> bool:
    return inspect.isclass(value) and value.__module__.startswith(module)


def _describe(module: ModuleType, names: list[str], homes: dict[object, str]) -> Iterator[str]:
    for name in names:
        value = getattr(module, name)
        if homes[value] != f"{module.__name__}.{name}":
            yield f"{name} = {homes[value]}"
        elif inspect.isclass(value):
            bases = ", ".join(homes[base] for base in value.__bases__ if base in homes)
            yield f"class {name}({bases})" if bases else f"class {name}"
            if signature := _signature(value):
                yield f"    __init__{signature}"
            listed_bases = {
                base for owner in value.__mro__[1:] if owner in homes for base in owner.__mro__
            }
            yield from _members([base for base in value.__mro__ if base not in listed_bases])
        elif callable(value):
            yield f"{name}{_signature(value)}"
        else:
            yield f"{name}: {type(value).__name__}"


def _members(classes: list[type]) -> Iterator[str]:
    """Yield the public attributes that classes of belated define."""
    members = dict[str, str]()
    for owner in reversed(classes):
        if not _defined_in(owner, "belated"):
            continue
        for name, annotation in inspect.get_annotations(owner).items():
            members[name] = f": {_plain(annotation)}"
        for name, member in vars(owner).items():
            if isinstance(member, property) and member.fget:
                members[name] = f": {_plain(inspect.get_annotations(member.fget).get('return'))}"
            elif callable(getattr(owner, name, None)) and not inspect.isclass(member):
                members[name] = _signature(getattr(owner, name))
    for name, text in sorted(members.items()):
        if not name.startswith(("_", "test_")):  # contracts are used by their fixtures
            yield f"    {name}{text}"


def _signature(value: Any) -> str:
    try:
        return _plain(inspect.signature(value))
    except ValueError:  # a class whose constructor is written in C
        return ""


def _plain(written: object) -> str:
    """Return an annotation or a signature without modules, addresses in memory and counts."""
    text = getattr(written, "__name__", str(written))
    text = re.sub(r"(: |-> )(['\"])(.*?)\2", r"\1\3", text)
    text = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])| at 0x[0-9a-f]+|(?<=Seen\()\{.*?\}", "", text)


def _commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield each command, with its arguments in alphabetical order."""
    groups = [
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    ]
    for group in groups:
        for command in group.choices.values():
            yield from _commands(command)
    if not groups:
        yield parser.prog
        yield from sorted(
            _argument(action)
            for action in parser._actions
            if action.dest != "help" and action.help is not argparse.SUPPRESS
        )


def _argument(action: argparse.Action) -> str:
    names = " ".join(action.option_strings) or action.dest
    facts = {
        "nargs": action.nargs,
        "choices": sorted(map(str, action.choices)) if action.choices else None,
        "default": None if action.default is argparse.SUPPRESS else action.default,
        "required": action.required or None,
    }
    settings = [f"{name}={value}" for name, value in facts.items() if value is not None]
    return f"    {names} {', '.join(settings)}".rstrip()


if __name__ == "__main__":
    FILE.write_text(surface(), encoding="utf-8")
    print(f"{FILE.name} written")
