"""``belated evaluate``, and the exports for other tools."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import (
    Bandit,
    Bernoulli,
    DefaultAfter,
    DelayedUCB,
    Explicit,
    PerArm,
    Shared,
    SQLiteJournal,
)
from belated.cli.main import main

HOUR = 3_600_000_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A journal in which red earns more than blue."""
    path = tmp_path_factory.mktemp("journals") / "offers.db"
    now = [1_700_000_000_000_000]
    journal = SQLiteJournal(path, bandit="offers", clock=lambda: now[0])
    features = PerArm(["red", '=1+"x"'], context=["age"])
    policy = DelayedUCB(features.dim, Bernoulli(), floor=0.4)
    rng = np.random.default_rng(0)
    with Bandit(
        policy=policy,
        rewards=DefaultAfter("2d"),
        journal=journal,
        features=features,
        clock=lambda: now[0],
        seed=1,
    ) as bandit:
        queue = []
        for n in range(400):
            now[0] += HOUR
            decision = bandit.decide({"age": rng.random()}, id=f"d{n}")
            if rng.random() < (0.7 if decision.action == "red" else 0.2):
                queue.append((n + 1 + int(30 * rng.random()), decision.id))
            for due, id in [entry for entry in queue if entry[0] <= n]:
                bandit.observe(id, 1.0)
                queue.remove((due, id))
        bandit.void("d7")
        bandit.sync()
    return f"sqlite:///{path}"


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output of a command."""
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_actions_offered_by_name_need_their_catalogue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal has the names; the records come from a file."""
    offers: dict[str, Any] = {"red": {"price": 1.0}, "blue": {"price": 0.5}}
    features = Shared(action=["price"], catalogue=offers)
    policy = DelayedUCB(features.dim, Bernoulli(), floor=0.8)
    journal = SQLiteJournal(tmp_path / "offers.db", bandit="offers")
    with Bandit(
        policy=policy, rewards=Explicit(), journal=journal, features=features, seed=1
    ) as bandit:
        for n in range(100):
            bandit.observe(bandit.decide({}).id, float(n % 2))
    file = tmp_path / "offers.json"
    file.write_text(json.dumps(offers), encoding="utf-8")
    command = ["evaluate", f"sqlite:///{tmp_path}/offers.db", "--policy", "uniform", "--json"]
    assert main(command) == 2
    assert "100 of them used a different catalogue" in capsys.readouterr().err
    result = json.loads(told(capsys, *command, "--catalogue", str(file)))
    assert result["decisions"] == 100


def test_policies_are_compared(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy by its name, or as an expression."""
    red = json.loads(told(capsys, "evaluate", address, "--policy", "red", "--json"))
    uniform = json.loads(told(capsys, "evaluate", address, "--policy", "uniform", "--json"))
    assert red["low"] < 0.7 < red["high"]
    assert red["value"] > uniform["value"]
    options = ["--policy", "Greedy(dim=4, family=Bernoulli())", "--since", "2023-11-21T00:00:00Z"]
    text = told(capsys, "evaluate", address, *options)
    assert "mean reward of a decision" in text
    assert "worth" in text


def test_a_refusal_says_what_to_do(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line."""
    assert main(["evaluate", address, "--lift"]) == 2
    assert "holdout=Holdout" in capsys.readouterr().err
    assert main(["evaluate", address, "--lift", "--since", "2023-11-21T00:00:00Z"]) == 2
    assert "--since cannot be combined with --lift" in capsys.readouterr().err
    assert main(["evaluate", address, "--policy", "green"]) == 2
    assert "does not offer the action 'green'" in capsys.readouterr().err


def test_delays_are_told(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON."""
    text = told(capsys, "evaluate", address, "--delays", "--ahead", "12h")
    assert "half have arrived" in text
    assert "to come within 12 h" in text
    report = json.loads(told(capsys, "evaluate", address, "--delays", "--json"))
    assert 0 < report["delays"]["p50"] < 30 * 3600
    assert report["depends_on_reward"] is None
    assert report["depends_on_action"]["p"] > 0.001


def test_csv_and_json_lines_have_every_decision(address: str, tmp_path: Path) -> None:
    """With the same values; unknown ones are empty or null."""
    for name in ("csv", "jsonl"):
        output = str(tmp_path / name)
        assert main(["journal", "export", address, "--format", name, "-o", output]) == 0
    lines = [json.loads(line) for line in (tmp_path / "jsonl").read_text().splitlines()]
    with (tmp_path / "csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [f"d{n}" for n in range(400)]
    assert [row["id"] for row in rows] == [line["id"] for line in lines]
    assert {line["action"] for line in lines} == {"red", '=1+"x"'}
    assert {row["action"] for row in rows} == {"red", '\'=1+"x"'}  # a spreadsheet would run it
    for line, row in zip(lines, rows, strict=True):
        assert (row["value"] == "") == (line["value"] is None)
        assert float(row["propensity"]) == line["propensity"]
        assert (line["rewarded"] is not None) == (line["state"] == "rewarded")
    assert lines[7]["state"] == "voided"


def test_requests_come_on_demand(address: str, tmp_path: Path) -> None:
    """They can be personal data."""
    output = tmp_path / "out.jsonl"
    arguments = ["journal", "export", address, "--format", "jsonl", "--requests"]
    assert main([*arguments, "-o", str(output)]) == 0
    record = json.loads(output.read_text().splitlines()[0])
    assert list(record["request"]["context"]) == ["age"]


def test_dsjson_is_what_other_evaluators_read(address: str, tmp_path: Path) -> None:
    """Cost, probability and ranking of every decision with a known outcome."""
    output = tmp_path / "out.dsjson"
    assert main(["journal", "export", address, "--format", "dsjson", "-o", str(output)]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert 300 < len(lines) < 400
    for line in lines:
        assert line["_label_cost"] in (-1.0, 0.0)
        assert line["a"][0] == line["_label_Action"] == line["_labelIndex"] + 1
        assert line["p"][0] == line["_label_probability"]
        assert sum(line["p"]) == pytest.approx(1.0)
        assert len(line["c"]["_multi"]) == 2
        assert "age" in line["c"]["shared"]


def test_parquet_has_a_schema_and_every_value(address: str, tmp_path: Path) -> None:
    """DuckDB and pandas read it."""
    pq = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "out.parquet"
    assert main(["journal", "export", address, "--format", "parquet"]) == 2
    arguments = ["journal", "export", address, "--format", "parquet", "--requests"]
    assert main([*arguments, "-o", str(output)]) == 0
    schema = pq.read_schema(output)
    assert schema.metadata[b"belated.schema"] == b"belated-decisions/1"
    rows: list[dict[str, Any]] = pq.read_table(output).to_pylist()
    lines_file = tmp_path / "out.jsonl"
    assert main(["journal", "export", address, "--format", "jsonl", "-o", str(lines_file)]) == 0
    for row, line in zip(rows, map(json.loads, lines_file.read_text().splitlines()), strict=True):
        for name in ("id", "action", "propensity", "mean", "state", "value", "late", "position"):
            assert row[name] == line[name]
        assert row["recorded"].isoformat() == line["recorded"].replace(".000000Z", "+00:00")
        assert json.loads(row["request"])["share"] == 1.0


def test_an_export_that_fails_leaves_no_file(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial file could be mistaken for a complete one."""

    def fail(*arguments: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("belated.cli.journal.export.WRITERS", {"csv": fail})
    output = tmp_path / "out.csv"
    assert main(["journal", "export", address, "--format", "csv", "-o", str(output)]) == 2
    assert not output.exists()


def test_pictures_are_drawn(address: str, tmp_path: Path) -> None:
    """For each command; an unknown format is rejected before anything is read."""
    pytest.importorskip("matplotlib")
    for name, arguments in {
        "evaluate": ["evaluate", address, "--policy", "red"],
        "delays": ["evaluate", address, "--delays"],
    }.items():
        file = tmp_path / f"{name}.png"
        assert main([*arguments, "--figure", str(file)]) == 0
        assert file.read_bytes()[:4] == b"\x89PNG"
        assert main([*arguments, "--figure", str(tmp_path / "figure.txt")]) == 2
