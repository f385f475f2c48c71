"""What earlier releases have written is read, and comes to what it came to then.

`tests/golden/make.py` has written it, with each of the releases after which folders are named.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated.cli.main import main
from belated.events import Decision, encode
from belated.journals import Journal, MemoryJournal, SpoolJournal, SQLiteJournal
from belated.learner import fold_state
from belated.learner.fold import Fold
from belated.published import PublishedModel
from tests.golden.make import (
    BANDITS,
    HERE,
    PARTITIONS,
    POLICY,
    happened,
    new_fold,
    requests_in,
    told,
)

RELEASES = sorted(one.name for one in HERE.iterdir() if (one / "expected.json").exists())


@pytest.fixture(params=RELEASES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a release has written."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / "golden"))


def expected(golden: Path) -> dict[str, Any]:
    """What it came to."""
    found: dict[str, Any] = json.loads((golden / "expected.json").read_text(encoding="utf-8"))
    return found


def check(fold: Fold, before: dict[str, Any]) -> None:
    """It comes to the same."""
    now = told(fold)
    assert now.pop("theta") == pytest.approx(before.pop("theta"), rel=1e-6)
    assert now == before


def caught_up(journal: Journal, bandit: str, *, load: bool) -> Fold:
    """A fold of all records, beginning with the snapshots or not."""
    fold = new_fold(bandit)
    if load:
        fold.load(journal)
    else:
        fold.begin(journal)
    fold.catch_up(journal)
    return fold


def test_there_is_one() -> None:
    """And in it are decisions in every state, and rewards that came in every way."""
    assert RELEASES
    found = expected(HERE / RELEASES[-1])["bandits"]
    states = {state for one in found.values() for state, count in one["counts"].items() if count}
    assert states == set(found["explicit"]["counts"]), states
    assert {"unmatched", "duplicate", "revised", "late", "switched", "configured"} <= set(
        found["explicit"]["counters"]
    )


@pytest.mark.parametrize("bandit", BANDITS)
@pytest.mark.parametrize("load", [True, False])
def test_a_journal_is_replayed(golden: Path, bandit: str, load: bool) -> None:
    """From its snapshots, or from its beginning; and it takes further events."""
    with SQLiteJournal(golden / "journal.db", bandit=bandit) as journal:
        fold = caught_up(journal, bandit, load=load)
        if bandit == "trimmed":
            assert min(journal.start(partition).position for partition in range(PARTITIONS)) > 0
            assert journal.decisions(["order 1"]) == {}
        else:
            assert requests_in(journal) == expected(golden)["requests"]
        check(fold, expected(golden)["bandits"][bandit])
        decision = Decision("new", 5, 0, 0, np.ones(3, np.float32), 0.5, 1.0, 7)
        journal.append([decision])
        assert fold.catch_up(journal) == 1


def test_a_snapshot_of_another_format_is_passed_over(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is older or newer: the journal has the facts."""
    with SQLiteJournal(golden / "journal.db", bandit="explicit") as journal:
        monkeypatch.setattr(fold_state, "VERSION", 99)
        fold = new_fold("explicit")
        fold.load(journal)
        assert fold.positions == [0] * PARTITIONS
        fold.catch_up(journal)
        check(fold, expected(golden)["bandits"]["explicit"])
        fold.save(journal)
        monkeypatch.undo()
        check(caught_up(journal, "explicit", load=True), expected(golden)["bandits"]["explicit"])


def test_exported_lines_are_imported(golden: Path) -> None:
    """Into a journal of the same partitions, with the same records."""
    path = golden / "imported.db"
    assert main(["journal", "import", str(golden / "explicit.jsonl"), f"sqlite:///{path}"]) == 0
    with SQLiteJournal(path, bandit="explicit") as journal:
        assert requests_in(journal) == expected(golden)["requests"]
        check(caught_up(journal, "explicit", load=False), expected(golden)["bandits"]["explicit"])


def test_what_waits_in_a_spool_is_handed_over(golden: Path) -> None:
    """In order, byte for byte."""
    journal = MemoryJournal()
    with SpoolJournal(journal, golden / "spool", wait=None) as spool:
        assert spool.status.queued == 0
        records = journal.read(0, 0, 1_000)
        kept = journal.requests(0, [one.position for one in records])
    assert [encode(one.event).hex() for one in records] == expected(golden)["spool"]
    made = [one.position for one in records if isinstance(one.event, Decision)]
    assert kept == dict.fromkeys(made, b"kept")


def test_a_model_is_taken(golden: Path) -> None:
    """With the numbers it had; its policy is still called the same."""
    model = PublishedModel.read((golden / "model").read_bytes()).model(POLICY)
    was = expected(golden)["model"]
    assert {"theta": model.theta.tolist(), "pending": model.pending} == was


def test_the_codec_writes_what_it_wrote(golden: Path) -> None:
    """An event of a kind that was known then has the same bytes: a retry is recognised by them."""
    written = [encode(event).hex() for _, event in happened()]
    was = expected(golden)["spool"]
    assert written[: len(was)] == was
