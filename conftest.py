"""Run the Python code in README.md and in the documentation: `pytest README.md docs`."""

import os
import tempfile
from typing import Any

from sybil import Sybil
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

collect_ignore = ["docs/conf.py", "docs/generate.py"]  # they contain no doctests


def _enter_folder(namespace: dict[str, Any]) -> None:
    """Run each document in a temporary folder, so that its files are removed."""
    namespace["_folder"] = tempfile.TemporaryDirectory()
    namespace["_before"] = os.getcwd()
    os.chdir(namespace["_folder"].name)


def _leave_folder(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    setup=_enter_folder,
    teardown=_leave_folder,
    parsers=[PythonCodeBlockParser(doctest_optionflags=NUMBER), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
).pytest()
