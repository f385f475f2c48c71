"""``belated init`` and the next steps that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from belated.cli.main import main
from tests.first_decision import BODY, first_decision


def test_three_commands_give_a_decision(tmp_path: Path) -> None:
    """In less than 30 s; .ci/wheel does the same with the wheel in a new environment."""
    seconds, decision = first_decision(tmp_path)
    print(f"\nthe first decision: {seconds:.1f} s")
    assert decision["propensity"] > 0


def test_init_overwrites_nothing_and_says_what_comes_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is valid, and the printed request is the one tested here."""
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    output = capsys.readouterr().out
    assert "\n  belated serve belated.toml\n" in output
    assert f"-d '{BODY}'" in output
    content = Path("belated.toml").read_bytes()
    assert main(["serve", "--check", "belated.toml"]) == 0
    assert main(["init"]) == 2
    assert "belated.toml already exists" in capsys.readouterr().err
    assert Path("belated.toml").read_bytes() == content
    assert main(["init", "my shop.toml"]) == 0
    assert "belated serve 'my shop.toml'" in capsys.readouterr().out
    assert not Path("belated.db").exists()
