"""What is public: few names, each from one of the modules that the reference lists."""

from __future__ import annotations

import ast
from pathlib import Path

import belated

SOURCE = Path(belated.__file__).parent
REFERENCE = SOURCE.parents[1] / "docs" / "reference" / "index.md"
#: The most names of ``belated`` itself, and of all modules together.
MOST_OF_BELATED, MOST = 40, 200


def exports() -> dict[str, list[str]]:
    """The names in the ``__all__`` of each module that has one."""
    exported = {}
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                    module = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)
                    exported[module.removesuffix(".__init__")] = ast.literal_eval(value)
    return exported


def test_names_are_few() -> None:
    """Each is kept for as long as there are users."""
    assert len(belated.__all__) <= MOST_OF_BELATED
    assert sum(map(len, exports().values())) <= MOST


def test_only_public_modules_export_names() -> None:
    """They are those of the section "What is public"; all else may change in any release."""
    section = REFERENCE.read_text(encoding="utf-8").partition("## What is public")[2]
    table = section.partition("\n## ")[0]
    assert {name for name in exports() if f"| `{name}` |" not in table} == set()
