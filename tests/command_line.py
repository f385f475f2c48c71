"""Run commands, and return their output."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from belated.cli.main import main


@dataclass(frozen=True)
class Command:
    """A command of ``belated``, by its name."""

    name: str

    def said(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        """Return what the command prints to stdout; assert that stderr is empty."""
        capsys.readouterr()
        assert main([self.name, *map(str, arguments)]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    def complaint(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        """Return the one-line error of a command that fails."""
        capsys.readouterr()
        try:
            code = main([self.name, *map(str, arguments)])
        except SystemExit as error:  # raised by argparse
            code = int(error.code or 0)
        assert code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("belated: ")
        assert err.count("\n") == 1
        return err
