"""Reference pages say what the code says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("httptools")

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = ROOT / "src" / "belated" / "service" / "operating" / "config.py"


def test_generated_pages_are_up_to_date() -> None:
    """Otherwise run ``python docs/generate.py``."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, page in module.PAGES.items():
        text = (DOCS / "reference" / name).read_text(encoding="utf-8")
        assert text == page(), f"{name} is not what the code says: run python docs/generate.py"


def test_every_setting_is_documented_and_no_other() -> None:
    """The keys that are read from belated.toml, under the name of their table."""
    text = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|(.*)$", text, re.MULTILINE)
    documented = {
        name.rpartition(".")[2] for names, _ in rows for name in re.findall(r"`([\w.]+)`", names)
    } | {"baseline", "by"}  # of a holdout: in the line of its share
    keys = set(re.findall(r'\.take\(\s*"(\w+)"', CONFIG.read_text(encoding="utf-8")))
    assert documented == keys


def test_every_page_is_in_a_table_of_contents() -> None:
    """And llms.txt names pages that exist."""
    names = re.findall(r"\]\(([\w/-]+)\.html\)", (DOCS / "llms.txt").read_text(encoding="utf-8"))
    assert names
    for name in names:
        assert (DOCS / f"{name}.md").exists(), name
