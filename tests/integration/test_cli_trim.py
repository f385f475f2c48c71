"""``belated journal trim``, on both stores."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB
from belated.cli.journal import trim as command
from belated.cli.main import main
from belated.core.events import Decision, Erased, Event, Reward, Trimmed
from belated.core.ids import erased_key_of
from belated.core.rewards import retention_us
from belated.core.times import as_datetime
from belated.exceptions import InvalidInput, JournalMismatch
from belated.fold.fold import Fold, same_sums
from belated.fold.trimming import make_bases
from belated.journals import Journal, Store
from belated.journals.snapshots import Snapshot
from belated.service.learning.learning_service import LearningService
from belated.service.learning.refold import PAUSE, Refold
from tests.command_line import Command
from tests.integration.forger import forger

POLICY = DelayedUCB(2, Bernoulli())
REWARDS = DefaultAfter(timedelta(hours=1))
RETENTION = timedelta(days=1)
HOUR = 3_600_000_000
PARTITIONS, COUNT, SPAN = 2, 6_000, 20 * 24 * HOUR


def opened(store: Store, bandit: str) -> Bandit:
    """Open the bandit."""
    journal = store.journal(bandit, partitions=PARTITIONS)
    return Bandit(policy=POLICY, journal=journal, rewards=REWARDS, retention=RETENTION, seed=7)


@pytest.fixture
def used(store: Store, bandit: str) -> Iterator[Bandit]:
    """Twenty days of decisions, half of them with a reward."""
    rng = np.random.default_rng(3)
    journal = store.journal(bandit, partitions=PARTITIONS)
    now = journal.now()
    stamps = (now - SPAN + np.sort(rng.integers(SPAN, size=COUNT))).tolist()
    events: list[Event] = []
    for n, stamp in enumerate(stamps):
        if n % 2 == 0:
            x = rng.random(2, dtype=np.float32)
            events.append(Decision(f"order-{n}", stamp, 0, 0, x, 0.5, 1.0, 0))
        else:
            lag = int(rng.integers(1, 10))
            events.append(Reward(f"order-{max(0, n - 2 * lag + 1)}", stamp, 1.0, reporter="crm"))
    records = [(event, stamp) for event, stamp in zip(events, stamps, strict=True)]
    for start in range(0, COUNT, 1_000):
        batch = records[start : start + 1_000]
        journal.append([event for event, _ in batch], recorded=[stamp for _, stamp in batch])
    journal.close()
    instance = opened(store, bandit)
    instance.sync()
    instance.save()
    yield instance
    instance.close()


@pytest.fixture
def named(address: str, bandit: str) -> str:
    """Its address."""
    return f"{address}?bandit={quote(bandit)}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trim without pauses, since no other process uses the store."""
    monkeypatch.setattr(command, "PAUSE", 0.0)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output of a command."""
    return Command("journal").said(capsys, *arguments)


def trimmed(capsys: pytest.CaptureFixture[str], named: str, age: str = "10d") -> str:
    """Return the output of a trim."""
    return said(capsys, "trim", named, "--older-than", age, "--reason", "too old")


def verified(
    capsys: pytest.CaptureFixture[str], named: str, *more: str, code: int = 0
) -> dict[str, Any]:
    """Return the report of a verification."""
    capsys.readouterr()
    assert main(["journal", "verify", named, "--json", *more]) == code
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def test_trimmed_records_still_count(
    used: Bandit, store: Store, bandit: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a bandit that stays open, one that loads its snapshot, and one without a snapshot."""
    digest, counts, theta = used.digest, used.decision_counts, used.estimate.theta
    moment = as_datetime(used.journal.now() - 5 * 24 * HOUR)
    view = used.as_of(moment)
    early_head = verified(capsys, named)["head"]
    assert "dropped, up to" in trimmed(capsys, named)
    starts = [used.journal.start(p) for p in range(PARTITIONS)]
    assert min(start.position for start in starts) >= 1_024
    assert used.observe("order-17", 1.0).status in ("expired", "unmatched")
    assert used.digest == digest
    second_view = used.as_of(moment)
    assert (second_view.digest, second_view.decision_counts) == (view.digest, view.decision_counts)
    with pytest.raises(InvalidInput, match="were trimmed: choose a later time"):
        used.as_of(as_datetime(starts[0].stamp - 1))
    acts = [
        record.event
        for p in range(PARTITIONS)
        for record in used.journal.read(p, starts[p].position, 9_999)
        if isinstance(record.event, Trimmed)
    ]
    assert [(act.through, act.recorded) for act in acts] == starts
    assert (acts[0].reason, "@" in acts[0].actor) == ("too old", True)

    with closing(opened(store, bandit)) as reopened:  # with its snapshots
        assert (reopened.digest, reopened.decision_counts) == (digest, counts)
    for p in range(PARTITIONS):  # whatever is in them now, it is of no use
        used.journal.save(Snapshot(p, used.journal.end(p), "other", {}))
    with closing(opened(store, bandit)) as reopened:
        assert (reopened.digest, reopened.decision_counts) == (digest, counts)
        np.testing.assert_allclose(reopened.estimate.theta, theta, rtol=1e-6)
        reopened.save()

    report = verified(capsys, named)
    assert (report["status"], report["compared"]) == ("ok", PARTITIONS)
    assert "were trimmed" in report["notes"][0]
    assert verified(capsys, named, "--expect", report["head"])["status"] == "ok"
    assert verified(capsys, named, "--expect", early_head)["status"] == "ok"
    output = said(capsys, "inspect", named)
    assert re.search(f"trimmed +{sum(start.position for start in starts):,}, up to", output)
    assert main(["journal", "show", "order-0", named]) == 1


def test_a_head_of_what_was_trimmed_cannot_be_checked(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """This is reported, and the exit code is 2: nothing is known to be wrong."""
    for age in ("12d", "5d"):
        trimmed(capsys, named, age)
        start = [used.journal.start(p) for p in range(PARTITIONS)]
        if age == "12d":
            positions = [mark.position for mark in start]
    head = verified(capsys, named)["head"]
    old_head = f"{positions[0]},{positions[1]}:{head.partition(':')[2]}"
    report = verified(capsys, named, "--expect", old_head, code=2)
    assert "have been trimmed since then" in report["not_compared"][0]


def test_changed_history_behind_a_base_is_found(
    used: Bandit,
    store: Store,
    address: str,
    bandit: str,
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The chain continues from the base; a changed base cannot be used."""
    head = verified(capsys, named)["head"]
    trimmed(capsys, named)
    with closing(forger(store, address, bandit)) as meddler:
        rows = meddler.rows()
        rows[-9] = rows[-9]._replace(recorded=rows[-9].recorded + 1)
        meddler.replace(rows)
    report = verified(capsys, named, "--expect", head, code=1)
    assert "the records do not match the head" in report["damage"][0]


def test_trimming_goes_on_where_it_was_left(
    used: Bandit,
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After an interruption, and some days later."""
    digest = used.digest
    drop = type(used.journal).drop

    def interrupted(journal: Any, partition: int, limit: int) -> int:
        drop(journal, partition, 10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(used.journal), "drop", interrupted)
        assert main(["journal", "trim", named, "--older-than", "12d", "--reason", "why"]) == 130
    assert used.digest == digest
    assert verified(capsys, named)["status"] == "ok"
    start = used.journal.start(0)
    number = next(n for n in range(COUNT) if used.journal.records_of([f"order-{n}"]))
    error = Command("journal").complaint(
        capsys, "erase", named, f"order-{number}", "--reason", "why"
    )
    assert "old records were trimmed" in error  # its record is there, and the base has it too
    assert "dropped, up to" in trimmed(capsys, named, "12d")
    assert used.journal.start(0) == start
    assert "dropped" in trimmed(capsys, named, "5d")
    assert used.journal.start(0) > start
    assert "no records of" in trimmed(capsys, named, "5d")
    assert (verified(capsys, named)["status"], used.digest) == ("ok", digest)


def test_what_is_undone_while_bases_are_made(
    used: Bandit,
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bases are computed again, and none holds an erased event."""
    calls: list[int] = []

    def undoing(journal: Journal, fold: Fold, *rest: Any) -> list[Snapshot]:
        bases = make_bases(journal, fold, *rest)
        if not calls:
            used.journal.append([Erased(erased_key_of("order-0"), 1)])
        calls.append(1)
        return bases

    monkeypatch.setattr(command, "make_bases", undoing)
    used.save()
    trimmed(capsys, named)
    assert len(calls) == 2
    assert sum(used.decision_counts.values()) == COUNT // 2 - 1
    report = verified(capsys, named)
    assert (report["status"], report["digest"]) == ("ok", used.digest)


def test_what_cannot_be_trimmed_is_refused(
    used: Bandit, store: Store, bandit: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What still accepts rewards, is in no snapshot, or belongs to other settings."""
    complaint = Command("journal").complaint
    options = ["--reason", "why"]
    assert "at least the retention" in complaint(
        capsys, "trim", named, "--older-than", "1h", *options
    )
    other_options = ["--window", "2h", "--default", "0", "--retention", "1d"]
    assert "was saved with other settings" in complaint(
        capsys, "trim", named, "--older-than", "5d", *options, *other_options
    )
    assert "has no retention" in complaint(
        capsys, "trim", named, "--older-than", "5d", *options, "--window", "1h"
    )
    assert "no records of" in trimmed(capsys, named, "30d")
    assert used.journal.start(0).position == 0
    trimmed(capsys, named)
    moment = (datetime.now(UTC) - timedelta(days=15)).isoformat()
    assert "can no longer be retracted or restored" in complaint(
        capsys, "retract", named, "--key", "crm", "--from", moment, *options
    )
    assert "old records were trimmed" in complaint(capsys, "erase", named, "order-0", *options)
    with (
        store.journal(bandit) as journal,
        pytest.raises(JournalMismatch, match="with the settings it had then"),
    ):
        Bandit(policy=POLICY, journal=journal, rewards=REWARDS, retention=timedelta(days=2))


def test_a_trimmed_journal_is_exported_and_not_imported(
    used: Bandit, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For other readers; a journal imported from it would learn something else."""
    trimmed(capsys, named)
    said(capsys, "export", named, "-o", str(tmp_path / "out.jsonl"))
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["trimmed"] == [used.journal.start(p).position for p in range(2)]
    error = Command("journal").complaint(
        capsys, "import", str(tmp_path / "out.jsonl"), f"sqlite:///{tmp_path}/new.db"
    )
    assert "that had been trimmed" in error


def test_trimming_while_a_learner_runs(
    used: Bandit,
    store: Store,
    bandit: str,
    named: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It continues, and so does its second fold; a new one begins with the base."""

    def empty() -> Fold:
        retention = retention_us(RETENTION, REWARDS)
        return Fold(POLICY, REWARDS, partitions=PARTITIONS, retention=retention)

    clock = [0.0]
    with closing(
        LearningService(store.journal(bandit), store.coordination(bandit), empty, lease=60.0)
    ) as learner:
        while learner.step():
            pass
        learner.refold = Refold(learner.journal, lambda: clock[0])

        def refold(until: Callable[[], bool]) -> None:
            for _ in range(1_000):
                clock[0] += 2 * PAUSE
                learner.step()
                if until():
                    return
            raise AssertionError("it never came as far")

        refold(lambda: learner.refold._chain.position > 500)
        trimmed(capsys, named)
        with caplog.at_level(logging.ERROR):
            refold(lambda: learner.refold.compared >= PARTITIONS)
        assert learner.refold.disagreements == 0
        assert "disagrees" not in caplog.text
        assert learner.fold is not None
        fold = empty()
        fold.begin(learner.journal)
        fold.catch_up(learner.journal)
        assert fold.digest == learner.fold.digest
        assert fold.version == learner.fold.version
        assert same_sums(fold, learner.fold)
        assert fold.head == learner.fold.head


def test_readers_do_not_wait(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions are made between two steps of a trim."""
    slowest = 0.0
    drop = type(used.journal).drop

    def measured(journal: Any, partition: int, limit: int) -> int:
        nonlocal slowest
        start = time.monotonic()
        used.journal.append([Reward("nobody", 1, 1.0)])
        slowest = max(slowest, time.monotonic() - start)
        return drop(journal, partition, limit)

    monkeypatch.setattr(type(used.journal), "drop", measured)
    trimmed(capsys, named)
    assert slowest < 5.0


def test_a_story_says_that_records_may_be_missing(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a decision that may be older than what was dropped, and for no other."""

    def incomplete(id: str) -> bool:
        capsys.readouterr()
        main(["journal", "show", id, named, "--json"])
        return bool(json.loads(capsys.readouterr().out)["incomplete"])

    ids = "order-0", f"order-{COUNT - 2}", "nobody's"
    assert [incomplete(id) for id in ids] == [False, False, False]
    trimmed(capsys, named)
    assert [incomplete(id) for id in ids] == [True, False, True]
