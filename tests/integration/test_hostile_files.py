"""Hostile or damaged files: errors name the problem, and nothing runs as a formula."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB
from belated.cli.main import main
from belated.exceptions import CorruptJournal, JournalError
from belated.journals import open_journal, open_store

HOSTILE = ["=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]
HOSTILE += ["\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"]  # full-width


def exported(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of an exported journal of two decisions and a reward."""
    address = f"sqlite:///{folder}/source.db?bandit=offers"
    policy = DelayedUCB(2, Bernoulli())
    with Bandit(policy=policy, rewards=DefaultAfter("7d"), journal=open_journal(address)) as bandit:
        bandit.decide(rows=[[1, 0], [0, 1]], actions=["a", "b"], id="o-1")
        bandit.decide(rows=[[1, 0], [0, 1]], actions=["a", "b"], id="o-2")
        bandit.observe("o-1", 1.0)
    assert main(["journal", "export", address, "--output", f"{folder}/source.jsonl"]) == 0
    return [json.loads(line) for line in (folder / "source.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("propensity", 0.0, "`propensity` must be a probability above 0 and at most 1, got 0.0"),
        ("propensity", -1.0, "at most 1, got -1.0"),
        ("propensity", 1.5, "at most 1, got 1.5"),
        ("overall", 2.0, "`overall` must be a probability above 0 and at most 1, got 2.0"),
        ("x", [1e38, -1e38], "row values must be from -1e+08 to 1e+08"),
        ("x", [1.0, 2.0, 3.0], "must be a row of 2 numbers"),
        ("mean", 1e308, "`mean` must be from -1e+12 to 1e+12, got 1e+308"),
        ("index", -1, "`index` must be from 0 to 2147483647, got -1"),
        ("index", 1 << 62, "`index` must be"),
        ("model", -1, "`model` must be"),
        ("at", 1 << 62, "`at` must be"),
        ("id", "", "id must be text of 1 to 128 bytes"),
        ("id", "x" * 5_000, "is too long"),
    ],
)
def test_import_refuses_values_that_no_bandit_writes(
    field: str, value: Any, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the line and the field; later commands would fail on such values."""
    lines = exported(tmp_path)
    number = [line["kind"] for line in lines].index("decision")
    lines[number][field] = value
    lines[-1].pop("head", None)
    source = tmp_path / "changed.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["journal", "import", str(source), f"sqlite:///{tmp_path}/new.db"]) == 2
    error = capsys.readouterr().err
    assert f"{source}, line {number + 1}: " in error
    assert told in error


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"p": [1.5, -0.5]},
            "`p` of action 0 must be a probability, and above 0 for the chosen action; got -0.5",
        ),
        ({"p": [0.0, 1.0]}, "`p` of action 1 must be a probability"),
        ({"_labelIndex": 7}, "`_labelIndex` must be from 0 to 1, got 7"),
        ({"_label_cost": 1e300}, "`_label_cost` must be from -1e+09 to 1e+09, got -1e+300"),
        ({"pdrop": 1.0}, "`pdrop` must be at least 0 and less than 1, got 1.0"),
    ],
)
def test_import_refuses_logs_with_impossible_numbers(
    changed: dict[str, Any], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the line and field of a DSJSON file, or the decision of an OBP file."""
    line: dict[str, Any] = {
        "_label_cost": -1.0, "_labelIndex": 1, "a": [2, 1], "p": [0.75, 0.25],
        "c": {"_multi": [{"TAction": {"topic": "sport"}}, {"TAction": {"topic": "music"}}]},
    }  # fmt: skip
    source = tmp_path / "log.dsjson"
    source.write_text(json.dumps(line) + "\n" + json.dumps(line | changed) + "\n")
    target = f"sqlite:///{tmp_path}/new.db"
    assert main(["journal", "import", str(source), target, "--format", "dsjson"]) == 2
    error = capsys.readouterr().err
    assert f"{source}, line 2: " in error
    assert told in error


def test_import_refuses_arrays_with_impossible_probabilities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the decision and the array."""
    shares = np.array([[0.5, 0.5], [1.5, -0.5]])
    feedback: dict[str, Any] = {
        "context": np.eye(2),
        "action": [0, 1],
        "reward": [1, 0],
        "pscore": [0.5, -0.5],
    }
    np.savez(tmp_path / "log.npz", pi_b=shares, n_actions=2, **feedback)
    source = str(tmp_path / "log.npz")
    target = f"sqlite:///{tmp_path}/new.db"
    assert main(["journal", "import", source, target, "--format", "obp"]) == 2
    message = "`pi_b` of action 0 must be a probability, and above 0 for the chosen action; got 1.5"
    assert f"{source}, decision 1: {message}" in capsys.readouterr().err


def test_csv_holds_no_formulas(tmp_path: Path) -> None:
    """Texts that spreadsheets would execute start with an apostrophe; numbers are unchanged."""
    address = f"sqlite:///{tmp_path}/offers.db?bandit=offers"
    policy = DelayedUCB(2, Bernoulli())
    with Bandit(policy=policy, rewards=DefaultAfter("7d"), journal=open_journal(address)) as bandit:
        for text in HOSTILE:
            bandit.decide(rows=[[-1, 0]], actions=[text], id=f"{text} id")
        bandit.decide(rows=[[1, 0]], actions=[-7], id="plain")
    file = tmp_path / "offers.csv"
    assert main(["journal", "export", address, "--format", "csv", "--output", str(file)]) == 0
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["id"] for row in rows] == [*(f"'{text} id" for text in HOSTILE), "plain"]
    assert [row["action"] for row in rows] == [*(f"'{text}" for text in HOSTILE), "-7"]
    assert all(float(row["propensity"]) == 1.0 for row in rows)


def test_a_damaged_schema_is_reported_as_damage(tmp_path: Path) -> None:
    """Wherever a bit of its text was flipped, and never as an error of text encoding."""
    path = tmp_path / "offers.db"
    with open_journal(f"sqlite:///{path}?bandit=offers"):
        pass
    data = path.read_bytes()
    start = data.index(b"CREATE TABLE")
    count = 0
    for offset in range(start, start + 400, 3):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x80]) + data[offset + 1 :])
        for suffix in ("-wal", "-shm", ".end"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        try:
            open_store(f"sqlite:///{path}").describe()
            with open_journal(f"sqlite:///{path}?bandit=offers") as journal:
                journal.read(0, 0, 1)
        except CorruptJournal as error:
            count += "its schema is not text" in str(error)
        except JournalError:  # SQLite itself saw it; an error of encoding is none of these
            pass
    assert count > 0
