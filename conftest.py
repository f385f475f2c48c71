"""Runs the Python code of README.md and of the documentation: `pytest README.md docs`."""

import os
import tempfile
from typing import Any

from sybil import Sybil
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

collect_ignore = ["docs/conf.py", "docs/generate.py"]  # no modules with doctests


def _elsewhere(namespace: dict[str, Any]) -> None:
    """Each document runs in a folder of its own, so that its files are left nowhere."""
    namespace["_folder"] = tempfile.TemporaryDirectory()
    namespace["_before"] = os.getcwd()
    os.chdir(namespace["_folder"].name)


def _back(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_before"])
    namespace["_folder"].cleanup()


pytest_collect_file = Sybil(
    setup=_elsewhere,
    teardown=_back,
    parsers=[PythonCodeBlockParser(doctest_optionflags=NUMBER), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/**/*.md"],
).pytest()
