"""Commands as they are called, and what they say."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from belated.cli.main import main


@dataclass(frozen=True)
class Command:
    """A command of ``belated``, by its name."""

    name: str

    def said(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        """What the command prints; nothing else is said."""
        capsys.readouterr()
        assert main([self.name, *map(str, arguments)]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    def complaint(self, capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
        """What it says, in one line, where it cannot do what was asked."""
        capsys.readouterr()
        try:
            code = main([self.name, *map(str, arguments)])
        except SystemExit as left:  # by argparse
            code = int(left.code or 0)
        assert code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("belated: ")
        assert err.count("\n") == 1
        return err
