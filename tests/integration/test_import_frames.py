"""Logs in Parquet and CSV become journals, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, ConversionsOnly, DelayedUCB, PerArm
from belated.cli.main import main

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


def _frame(count: int = 600) -> Any:
    """Return a frame in which red converts more often than blue, some days later."""
    rng = np.random.default_rng(2)
    times = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(np.arange(count), "h")
    red = rng.random(count) < 0.5
    reward_times = times + pd.to_timedelta(rng.exponential(60, count).round(), "h")
    mask = (rng.random(count) < np.where(red, 0.6, 0.2)) & (reward_times <= times[-1])
    return pd.DataFrame({
        "visit": [f"v{n}" for n in range(count)], "age": rng.integers(18, 90, count),
        "action": np.where(red, "red", "blue"), "propensity": 0.5, "decided_at": times,
        "revenue": np.where(mask, 1.0, np.nan), "rewarded_at": reward_times.where(mask),
    })  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_becomes_a_journal(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be evaluated as of any time, and a bandit can continue from it."""
    file, address = tmp_path / f"log.{ending}", f"sqlite:///{tmp_path}/offers.db"
    frame = _frame()
    frame.to_parquet(file) if ending == "parquet" else frame.to_csv(file, index=False)
    command = ["journal", "import", str(file), "--context", "age", "--reward", "revenue",
               "--id", "visit", "--rewards", "ConversionsOnly('9d')"]  # fmt: skip
    assert main([*command, "--into", f"{address}?bandit=offers"]) == 0
    count = int(frame["revenue"].notna().sum())
    message = f"600 decisions and {count} rewards imported as bandit offers\n"
    assert capsys.readouterr().out == message
    evaluate = ["evaluate", address, "--policy", "red", "--json"]
    assert main(evaluate) == 0
    red = json.loads(capsys.readouterr().out)
    assert red["decisions"] == 600
    assert red["low"] < 0.6 < red["high"]
    assert main([*evaluate, "--as-of", "2026-01-15T00:00:00Z"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["decisions"] == 14 * 24 + 1
    assert result["high"] - result["low"] > red["high"] - red["low"]
    features = PerArm(["blue", "red"], context=["age"]).fit(frame[["age"]])
    with Bandit(
        features, ConversionsOnly("9d"), policy=DelayedUCB(), journal=f"{address}?bandit=offers",
    ) as bandit:  # fmt: skip
        assert bandit.entry("v3").decision is not None
        assert sum(bandit.decision_counts.values()) == 600


def test_what_is_missing_is_said_in_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is left behind."""
    file, target = tmp_path / "log.parquet", tmp_path / "offers.db"
    frame = _frame(20)
    frame.to_parquet(file)
    command = ["journal", "import", str(file)]
    options = ["--into", f"sqlite:///{target}"]
    assert main(command) == 2
    assert "--into sqlite:///offers.db" in capsys.readouterr().err
    assert main([*command, *options]) == 2
    assert "add --rewards \"ConversionsOnly('7d')\"" in capsys.readouterr().err
    assert main([*command, *options, "--rewards", "Explicit()"]) == 2
    assert "the data frame has only the columns" in capsys.readouterr().err
    frame.assign(decided_at=frame["decided_at"].dt.tz_localize(None)).to_parquet(file)
    assert main([*command, *options, "--rewards", "Explicit()", "--reward", "revenue"]) == 2
    assert "have no time zone" in capsys.readouterr().err
    file.write_bytes(b"no Parquet")
    assert main([*command, *options, "--rewards", "Explicit()"]) == 2
    assert "cannot be read as parquet" in capsys.readouterr().err
    assert not target.exists()
