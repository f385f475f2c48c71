"""README.md can be read on the code host and on a package index."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def test_links_of_the_package_are_absolute_and_exist() -> None:
    """The build hook prefixes each relative link with the address of the release's tag."""
    pytest.importorskip("hatchling")
    import hatch_build

    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    hatch_build.AbsoluteLinks(str(ROOT), {}).update(project)
    text = project["readme"]["text"]
    targets = re.findall(r"\]\(([^)#]+)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    tag = f"v{project['version']}"
    bases = tuple(f"{project['urls']['Source']}/{kind}/{tag}/" for kind in ("blob", "raw"))
    assert all(target.startswith("https://") for target in targets)
    files = [target.partition(f"/{tag}/")[2] for target in targets if target.startswith(bases)]
    assert len(files) > 20
    assert [file for file in files if not (ROOT / file).exists()] == []
