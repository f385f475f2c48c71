"""Runs the Python code of README.md and of the documentation: `pytest README.md docs`."""

from sybil import Sybil
from sybil.evaluators.doctest import NUMBER
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

collect_ignore = ["docs/conf.py"]  # it is Sphinx's, not a module with doctests

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=NUMBER), SkipParser()],
    patterns=["README.md", "docs/**/*.md"],
).pytest()
