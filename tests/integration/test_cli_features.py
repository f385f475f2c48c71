"""``belated features diff``, and the same plan in ``serve --check`` and ``doctor``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import belated.service.http
from belated import Bandit, PerArm
from belated.cli.main import main
from belated.exceptions import InvalidInput
from belated.service.operating.config import read_config

BEFORE = "PerArm(['mail', 'call'], context={'age': Number(18, 90), 'country': Category(['AT'])})"
AFTER = (
    "PerArm(['letter', 'mail', 'phone'], renamed={'call': 'phone'}, "
    "context={'age': Number(0, 50), 'member': Flag()})"
)


def config(folder: Path, features: str, more: str = "") -> str:
    """The configuration of a service."""
    file = folder / "belated.toml"
    file.write_text(
        f"""
        [store]
        address = "sqlite:///{folder}/belated.db"
        [bandits.offers]
        features = "{features}"
        rewards = "Explicit()"
        {more}
        """,
        encoding="utf-8",
    )
    return str(file)


def use(file: str) -> None:
    """Make some decisions for the configured bandit."""
    (definition,) = read_config(file).bandits
    with Bandit(
        policy=definition.policy,
        rewards=definition.rewards,
        features=definition.features,
        contexts=definition.contexts,
        journal=f"sqlite:///{Path(file).parent}/belated.db?bandit=offers",
        seed=7,
    ) as bandit:
        for decision in bandit.decide_many([{"age": 20 + n, "country": "AT"} for n in range(50)]):
            bandit.observe(decision.id, 1.0)


def test_the_plan_says_what_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of decisions to encode again; without a journal nothing is reported."""
    file = config(tmp_path, BEFORE)
    assert main(["features", "diff", file]) == 0
    assert capsys.readouterr().out == "no journals yet\n"
    use(file)
    assert main(["features", "diff", file]) == 0
    assert capsys.readouterr().out == "offers: features match the journal\n"
    config(tmp_path, AFTER)
    expected = [
        "field added: member Flag()",
        "field removed: country",
        "field changed: age Number(low=18.0, high=90.0) -> Number(low=0.0, high=50.0)",
        "action renamed: call -> phone",
        "action added: letter",
    ]
    assert main(["features", "diff", file, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["changes"] == expected
    assert (plan["decisions"], plan["missing"], plan["without_row"]) == (50, {"member": 1.0}, {})
    assert 0.0 < plan["seconds"] < 60.0
    for command in (["features", "diff", file], ["serve", "--check", file]):
        assert main(command) == 0
        text = capsys.readouterr().out
        assert all(f"\n  {change}\n" in text for change in expected)
        assert "about 50 decisions are encoded again; folding the journal takes about" in text
    main(["doctor", file])
    assert "warning  features of offers: field added: member Flag()" in capsys.readouterr().out
    config(tmp_path, AFTER.replace("renamed={'call': 'phone'}, ", ""))
    assert main(["features", "diff", file]) == 0
    assert "decisions have no row, so learners ignore them: unknown action" in (
        capsys.readouterr().out
    )


def test_a_journal_without_contexts_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan gives the reason, and the exit code is 1."""
    file = config(tmp_path, BEFORE, "contexts = false")
    use(file)
    config(tmp_path, AFTER)
    assert main(["features", "diff", file]) == 1
    assert "  refused: the features are not those of the journal" in capsys.readouterr().out
    assert main(["doctor", file]) == 1
    assert "wrong    features of offers" in capsys.readouterr().out
    assert main(["serve", "--check", file]) == 1
    output = capsys.readouterr().out
    assert "wrong    features of offers: field added: member Flag()" in output
    assert output.endswith("WRONG: the service cannot start, for 1 reason\n")
    assert main(["serve", file]) == 2
    error = capsys.readouterr().err
    assert "the features are not those of the journal" in error
    assert "Traceback" not in error


def test_what_a_service_needs_is_checked_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets of tokens, the number of partitions, and installed extras."""
    file = config(tmp_path, BEFORE, "partitions = 1")
    use(file)
    tokens = "partitions = 2\ntokens = 'enforce'\n[tokens]\nsecrets_env = 'NO_SUCH_SECRETS'"
    config(tmp_path, BEFORE, tokens)
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delattr(belated.service.http, "server", raising=False)
    for name in ("server", "connection"):
        monkeypatch.delitem(sys.modules, f"belated.service.http.{name}", raising=False)
    assert main(["serve", "--check", file]) == 1
    output = capsys.readouterr().out
    assert "partitions: 1, but 2 in the configuration" in output
    assert "the environment variable NO_SUCH_SECRETS is not set" in output
    assert output.endswith("WRONG: the service cannot start, for 3 reasons\n")
    assert main(["doctor", file]) == 1
    assert "wrong    extras: " in capsys.readouterr().out


@pytest.mark.parametrize("renamed", [{"call": "fax"}, {"mail": "call"}])
def test_a_rename_that_cannot_be_is_refused(renamed: dict[str, str]) -> None:
    """To an action that does not exist, or from one that still exists."""
    with pytest.raises(InvalidInput, match="map each old"):
        PerArm(["mail", "call"], renamed=renamed)
