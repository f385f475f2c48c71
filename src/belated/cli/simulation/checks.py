"""What commands check first, so that nothing is refused after a long run."""

from __future__ import annotations

import importlib
from pathlib import Path

from belated.cli.simulation.figures import KINDS
from belated.exceptions import InvalidInput, MissingExtra


def check_place(name: str | None) -> None:
    """Refuse a file that could not be written."""
    if name is not None and not Path(name).parent.is_dir():
        raise InvalidInput(f"{Path(name).parent}: there is no such folder", name)
    if name is not None and Path(name).is_dir():
        raise InvalidInput(f"{name} is a folder: the name of a file was expected", name)


def check_figure(name: str | None) -> None:
    """Refuse a picture that could not be drawn; its name says its kind."""
    if name is None:
        return
    if Path(name).suffix.lower() not in KINDS:
        raise InvalidInput(f"{name}: a name with {', '.join(KINDS)} was expected", name)
    check_place(name)
    check_extra("--figure", "matplotlib")


def check_extra(what: str, *modules: str) -> None:
    """Refuse what needs modules that are not installed."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            raise MissingExtra(what, "experiments") from None
