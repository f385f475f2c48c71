"""`belated journal show`: the history of one decision."""

import json
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
from belated.core.events import Activation, Decision, Reward, Settled, Void
from belated.core.ids import key_of, partition_of
from belated.journals import SQLiteJournal
from belated.testing import ManualClock
from tests.integration.used_journals import (
    HOUR,
    START,
    fold_of,
    records_in,
    said,
    used_journal,
)


class TestEntry:
    @pytest.mark.parametrize("partitions", [1, 4])
    def test_tells_the_state_the_bandit_has(
        self, partitions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """For every decision: the ledger's state, value and flags, from the records alone."""
        path = tmp_path / "offers.db"
        used_journal(path, partitions, rounds=60)
        fold = fold_of(records_in(path), Explicit(timedelta(hours=6)))
        states = set()
        for n in range(60):
            report = json.loads(
                said(capsys, "show", f"order-{n}", path, "--json", "--window", "6h")
            )
            partition = partition_of(key_of(f"order-{n}"), partitions)
            entry = fold.ledgers[partition].entry(f"order-{n}")
            assert entry is not None
            for name in ("state", "value", "late", "conflict"):
                assert report[name] == getattr(entry, name)
            assert report["due"] == entry.due_us
            assert report["records"][0]["kind"] == "decision"
            states.add(report["state"])
        assert states >= {"censored", "rewarded", "voided"}

    def test_shows_every_record_in_order(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Stamps, kinds, values and effects, within 80 columns."""
        path, clock = tmp_path / "offers.db", ManualClock(START)
        x = np.arange(9, dtype=np.float32)
        with SQLiteJournal(path, bandit="offers", clock=clock) as journal:
            journal.append([Reward("a", START, 0.5, "sale", 2)])
            clock.now += HOUR
            journal.append([Decision("a", 1 << 60, "blue", 4, x, 0.25, 0.125, 7, False)])
            journal.append([Decision("b", START, 0, 0, x, 0.0, 1.0, 7), Reward("b", 1, 1.0)])
            journal.append([Activation("a", START + HOUR)])
        text = said(capsys, "show", "a", path)
        assert max(map(len, text.splitlines())) <= 80
        assert "rewarded with 0.5" in text
        assert "(9 numbers)" in text
        assert "2023-11-14T23:13:20.000Z  decision, position 2" in text
        report = json.loads(said(capsys, "show", "a", path, "--json"))
        assert [(record["kind"], record["status"]) for record in report["records"]] == [
            ("reward", "unmatched"),
            ("decision", "decided"),
            ("activation", "activated"),
        ]

    def test_shows_what_it_was_chosen_from(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Rows with their names and probabilities, or the context; nothing if it was not stored."""
        path = tmp_path / "offers.db"
        policies = DelayedUCB(4, Bernoulli(), floor=0.5), DelayedUCB(4, Bernoulli())
        features = PerArm(["blue", "red"], context=["age"])
        address = f"sqlite:///{path}?bandit=rows"
        with Bandit(policy=policies[0], rewards=Explicit(), journal=address) as bandit:
            bandit.decide(rows=np.eye(4)[:3], actions=["blue", "red", 7], id="a")
        address = f"sqlite:///{path}?bandit=features"
        with Bandit(
            policy=policies[1], rewards=Explicit(), journal=address, features=features
        ) as bandit:
            bandit.decide({"age": 3.0}, {"blue": {"size": 5}, "red": None}, id="a")
        address = f"sqlite:///{path}?bandit=none"
        with Bandit(
            policy=policies[1], rewards=Explicit(), journal=address, keep_requests=0
        ) as bandit:
            bandit.decide(rows=np.eye(4), id="a")
        rows, context, none = (
            said(capsys, "show", "a", f"sqlite:///{path}?bandit={name}")
            for name in ("rows", "features", "none")
        )
        assert "chosen from 3 actions; stored with probability 1\n" in rows
        assert "\n  'red'       0." in rows
        assert "1, 0, 0, 0" in rows
        assert "context  {'age': 3.0}" in context
        assert "'blue'  {'size': 5}" in context
        assert "chosen from" not in none

    def test_what_is_not_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An id without records has exit code 1; one without its decision is unmatched."""
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers") as journal:
            journal.append([Void("early", 5)])
        assert "no record of late" in said(capsys, "show", "late", path, code=1)
        assert "unmatched" in said(capsys, "show", "early", path)

    def test_what_was_forgotten(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A decision beyond its retention keeps its last state."""
        path, clock = tmp_path / "offers.db", ManualClock(START)
        with SQLiteJournal(path, bandit="offers", clock=clock) as journal:
            x = np.ones(3, dtype=np.float32)
            journal.append([Decision("a", START, 0, 0, x, 0.0, 1.0, 0)])
            clock.now += 10 * HOUR
            journal.append([Settled(0, clock.now)])
        semantics = ["--window", "1h", "--default", "0.5", "--retention", "2h"]
        text = said(capsys, "show", "a", path, *semantics)
        assert "defaulted with 0.5 (forgotten)" in text
