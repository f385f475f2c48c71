"""``belated journal retract`` and ``erase``, on both stores."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import psycopg
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm, Text, Vector
from belated.cli.main import main
from belated.core.events import Erased, Record, Retracted, Reward
from belated.core.ids import erased_key_of, new_id
from belated.exceptions import CorruptEvent, HistoryUndone
from belated.fold.fold import Fold
from belated.journals import Journal, Store
from belated.journals.snapshots import Snapshot
from tests.command_line import Command
from tests.integration.postgres_server import PostgresServer

ROWS = np.eye(2, dtype=np.float32)
#: Of PostgreSQL, with what is stored for each decision.
TABLES = ("record", "request", "cell")


@pytest.fixture
def used(store: Store, bandit: str) -> Iterator[Bandit]:
    """Three decisions, each with a reward by a feed."""
    instance = Bandit(
        policy=DelayedUCB(2, Bernoulli()),
        rewards=Explicit(),
        journal=store.journal(bandit, partitions=2),
        seed=7,
    )
    for n in range(3):
        instance.decide(rows=ROWS, id=f"order-{n}")
        instance.journal.append([Reward(f"order-{n}", 10**15, 1.0, reporter="crm")])
    instance.observe("order-2", 0.0, part="own")
    yield instance
    instance.close()


@pytest.fixture
def named(address: str, bandit: str) -> str:
    """Its address."""
    return f"{address}?bandit={quote(bandit)}"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output of a command."""
    return Command("journal").said(capsys, *arguments)


def times(hours: float) -> list[str]:
    """Return a period that ends now."""
    now = datetime.now(UTC)
    start, end = now - timedelta(hours=hours), now - timedelta(milliseconds=1)
    return ["--from", start.isoformat(), "--to", end.isoformat()]


def test_a_feed_is_retracted_and_restored(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bandit continues as if it had never learned it; the journal records who did it."""
    assert used.estimate.n == 3
    digest = used.digest
    time.sleep(0.01)
    span = [named, "--key", "crm", *times(1), "--reason", "wrong currency"]
    assert f"3 rewards by crm in {used.journal.bandit} no longer count" in said(
        capsys, "retract", *span
    )
    assert used.estimate.n == 1
    assert used.entry("order-0").state == "pending"
    assert used.event_counts["retracted"] == 3
    events = [record.event for p in range(2) for record in used.journal.undone(p)]
    assert [type(event) for event in events] == [Retracted, Retracted]
    assert isinstance(events[0], Retracted)
    assert events[0].reason == "wrong currency"
    assert "@" in events[0].actor
    assert f"3 rewards by crm in {used.journal.bandit} count again" in said(
        capsys, "retract", *span, "--restore"
    )
    assert used.digest == digest


def test_what_cannot_be_retracted_is_refused(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A period that ends before it begins, one in the future, a time without a zone."""
    command = Command("journal")
    future = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    options = ["--key", "crm", "--reason", "why"]
    cases = {
        "must be before": ["--from", future, "--to", "2026-01-01T00:00Z"],
        "future rewards": ["--from", "2026-01-01T00:00Z", "--to", future],
        "has no time zone": ["--from", "2026-01-01", "--to", future],
        "must be ISO 8601 text": ["--from", "yesterday", "--to", future],
    }
    for message, span in cases.items():
        assert message in command.complaint(capsys, "retract", named, *options, *span)
    assert used.journal.undone(0) == []


def test_a_decision_is_erased(used: Bandit, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It no longer counts, and nothing about it is shown; an unknown id erases nothing."""
    command = Command("journal")
    error = command.complaint(capsys, "erase", named, "order-1", "nobody", "--reason", "why")
    assert "no record of 'nobody'" in error
    for ids in ((), ("order-1",)):
        assert "together with --reason" in command.complaint(capsys, "erase", named, *ids)
    error = command.complaint(capsys, "erase", named, "order-1", "--overwrite")
    assert "run it without IDs" in error
    assert used.decision_counts["rewarded"] == 3
    assert f"1 decision of {used.journal.bandit} erased" in said(
        capsys, "erase", named, "order-1", "--reason", "asked by the customer"
    )
    assert used.decision_counts["rewarded"] == 2
    assert used.observe("order-1", 1.0).status == "erased"
    events = [record.event for p in range(2) for record in used.journal.undone(p)]
    assert [event.key for event in events if isinstance(event, Erased)] == [
        erased_key_of("order-1")
    ]
    assert main(["journal", "show", "order-1", named]) == 1
    assert "no record of order-1" in capsys.readouterr().out


def verified(capsys: pytest.CaptureFixture[str], named: str, code: int = 0) -> dict[str, Any]:
    """Return the report of a verification."""
    capsys.readouterr()
    assert main(["journal", "verify", named, "--json"]) == code, capsys.readouterr().err
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def erase(capsys: pytest.CaptureFixture[str], named: str, id: str) -> None:
    """Erase a decision."""
    said(capsys, "erase", named, id, "--reason", "why")


def test_what_was_undone_verifies(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Snapshots from before an erasure are reported as unusable; later ones agree."""
    used.save()
    assert verified(capsys, named)["compared"] == 2
    erase(capsys, named, "order-1")
    report = verified(capsys, named)
    assert (report["status"], report["compared"]) == ("ok", 1)  # the other partition's
    assert report["counts"]["rewarded"] == 2
    assert "is older than an erasure or retraction" in report["notes"][0]
    assert "and 1 snapshot agrees" in said(capsys, "verify", named)
    used.sync()
    used.save()
    assert report["digest"] == used.digest

    said(capsys, "retract", named, "--key", "crm", *times(1), "--reason", "why")
    report = verified(capsys, named)
    assert (report["status"], report["compared"]) == ("ok", 0)
    assert "no snapshot to compare" in said(capsys, "verify", named)
    used.sync()
    used.save()
    used.observe("order-0", 1.0, part="own")  # a record behind the snapshot
    report = verified(capsys, named)
    assert (report["status"], report["compared"], report["notes"]) == ("ok", 2, [])
    assert report["digest"] == used.digest
    assert report["counts"] == used.decision_counts


def test_what_was_restored_verifies(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot from before a reverted retraction stays valid."""
    used.save()
    baseline = verified(capsys, named)
    span = [named, "--key", "crm", *times(1), "--reason", "why"]
    said(capsys, "retract", *span)
    assert verified(capsys, named)["compared"] == 0
    said(capsys, "retract", *span, "--restore")
    report = verified(capsys, named)
    assert (report["status"], report["compared"]) == ("ok", 2)
    assert report["digest"] == baseline["digest"] == used.digest


def test_a_wrong_snapshot_from_after_an_act_is_found(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is compared with the records that count."""
    said(capsys, "retract", named, "--key", "crm", *times(1), "--reason", "why")
    used.observe("order-0", 1.0, part="own")
    used.save()
    snapshot = used.journal.load(1)
    assert snapshot is not None
    pieces = snapshot.pieces | {"lines 0": bytes(reversed(snapshot.pieces["lines 0"]))}
    used.journal.save(Snapshot(1, snapshot.position, snapshot.fingerprint, pieces))
    assert verified(capsys, named, code=1)["status"] == "differs"


def test_an_act_while_verify_begins(
    used: Bandit,
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Erasures after the snapshots were loaded are known before a record is folded."""
    used.save()
    kind, ids = type(used.journal), ["order-1", "order-2"]
    end = kind.end

    def undoing(journal: Journal, partition: int) -> int:
        if ids:
            used.journal.append([Erased(erased_key_of(ids.pop()), 1)])
        return end(journal, partition)

    monkeypatch.setattr(kind, "end", undoing)
    report = verified(capsys, named)
    monkeypatch.undo()
    assert (report["status"], ids) == ("ok", [])
    assert report["counts"]["rewarded"] == 1
    assert report["digest"] == used.digest


def test_a_damaged_act_is_named(
    used: Bandit,
    named: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether its bytes were changed, or it is missing in the journal's index."""
    erase(capsys, named, "order-1")
    (act,) = [record for p in range(2) for record in used.journal.undone(p)]
    place = f"partition {act.partition}, position {act.position}"
    kind = type(used.journal)
    read, undone = kind.read, kind.undone

    def damaged(journal: Journal, partition: int, after: int, limit: int) -> list[Record]:
        page = read(journal, partition, after, limit)
        if any(record.position == act.position for record in page) and partition == act.partition:
            raise CorruptEvent(f"the record at {place} is damaged")
        return page

    def unreadable(journal: Journal, partition: int) -> list[Record]:
        if records := undone(journal, partition):
            raise CorruptEvent(f"the record at {place} is damaged")
        return records

    with monkeypatch.context() as patch:
        patch.setattr(kind, "undone", lambda journal, partition: [])
        report = verified(capsys, named, code=1)
        assert place in report["damage"][0]
        assert "missing in the journal's index" in report["damage"][0]
    with monkeypatch.context() as patch:
        patch.setattr(kind, "undone", unreadable)
        patch.setattr(kind, "read", damaged)
        assert verified(capsys, named, code=1)["damage"] == [f"the record at {place} is damaged"]


def holds(place: Path, data: bytes) -> bool:
    """Return whether any file contains these bytes."""
    files = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    files += list(place.parent.glob(f"{place.name}-*"))
    return any(data in _content(path) for path in files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # PostgreSQL deletes and rebuilds caches such as pg_internal.init
        return b""


def test_erased_decisions_leave_no_bytes(
    store: Store,
    address: str,
    named: str,
    bandit: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither in records nor in requests nor in snapshots, once the tables were rewritten."""
    rng = np.random.default_rng(5)
    rows = rng.random((2, 3, 8), dtype=np.float32)
    instance = Bandit(
        policy=DelayedUCB(8, Bernoulli()), rewards=Explicit(), journal=store.journal(bandit)
    )
    indices = [instance.decide(rows=rows[n], id=f"order-{n}").index for n in range(2)]
    for n in range(2):
        instance.observe(f"order-{n}", 1.0)
    instance.save()
    row_bytes = [rows[n, indices[n]].tobytes() for n in range(2)]
    head = verified(capsys, named)["head"]

    def files() -> Path:
        if address.startswith("sqlite"):
            return Path(address.removeprefix("sqlite:///"))
        server: PostgresServer = request.getfixturevalue("postgres")
        server.execute("CHECKPOINT")
        return server.tables

    assert holds(files(), row_bytes[0])
    erase(capsys, named, "order-0")
    assert main(["journal", "erase", named, "--overwrite"]) == 1
    assert "1 decision cannot be overwritten yet" in capsys.readouterr().out
    instance.sync()
    instance.save()
    assert "2 events of erased decisions overwritten" in said(capsys, "erase", named, "--overwrite")
    assert "0 events" in said(capsys, "erase", named, "--overwrite")
    if address.startswith("postgresql"):
        for table in ("record", "request", "cell"):
            request.getfixturevalue("postgres").execute(f"VACUUM FULL belated.{table}")
    assert not holds(files(), row_bytes[0])
    assert holds(files(), row_bytes[1])
    capsys.readouterr()
    assert main(["journal", "verify", named, "--expect", head]) == 0
    assert (instance.decision_counts["rewarded"], instance.estimate.n) == (1, 1)
    instance.close()
    reopened = Bandit(
        policy=DelayedUCB(8, Bernoulli()), rewards=Explicit(), journal=store.journal(bandit)
    )
    assert reopened.decision_counts["rewarded"] == 1
    view = reopened.as_of(reopened.journal.now())
    assert view.decision_counts["rewarded"] == 1
    reopened.close()


def test_of_an_erased_subject_no_byte_is_left(
    store: Store,
    address: str,
    named: str,
    bandit: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither its name nor the ids of its decisions; and it is never credited again."""
    settings: dict[str, Any] = {"policy": DelayedUCB(2, Bernoulli()), "rewards": Explicit()}
    instance = Bandit(**settings, journal=store.journal(bandit))
    subject, other_subject = "undone-4711", "undone-4712"
    ids = [instance.decide(rows=ROWS, id="visit-4711", subject=subject).id]
    ids.append(instance.decide(rows=ROWS, subject=subject).id)
    instance.decide(rows=ROWS, subject=other_subject)
    for name in (subject, other_subject):
        instance.observe(subject=name, value=1.0, event_id=f"sale-of-{name}")
    instance.observe(ids[0], 0.0)
    instance.save()
    traces = [subject.encode(), b"visit-4711", ids[1][16:].encode()]

    def found(traces: list[bytes]) -> list[bytes]:
        if address.startswith("sqlite"):
            folder = Path(address.removeprefix("sqlite:///")).parent
            return [trace for trace in traces if holds(folder, trace)]
        server: PostgresServer = request.getfixturevalue("postgres")
        for table in TABLES:
            server.execute(f"VACUUM FULL belated.{table}")
        server.execute("CHECKPOINT")
        return [trace for trace in traces if holds(server.tables, trace)]

    assert found(traces) == traces
    assert main(["journal", "erase", named, "--subject", "nobody", "--reason", "asked"]) != 0
    assert "no record of the subject 'nobody'" in capsys.readouterr().err
    output = said(capsys, "erase", named, "--subject", subject, "--reason", "asked")
    assert "erased, with 2 decisions" in output
    instance.sync()
    assert instance.decision_counts["rewarded"] == 1
    assert instance.observe(subject=subject, value=1.0, event_id="sale-again").status == "erased"
    instance.close()
    assert "7 events of erased" in said(capsys, "erase", named, "--overwrite")
    assert found(traces) == []
    assert found([other_subject.encode()]) == [other_subject.encode()]
    export, report = tmp_path / "exported.jsonl", tmp_path / "report.html"
    said(capsys, "export", named, "--output", str(export))
    assert main(["report", named, "--output", str(report)]) == 0
    assert not any(holds(file, trace) for file in (export, report) for trace in traces)
    assert verified(capsys, named)["status"] == "ok"
    with Bandit(**settings, journal=store.journal(bandit)) as reopened:
        assert reopened.decision_counts["rewarded"] == 1


def test_the_id_of_an_erased_decision_is_stored_nowhere(
    store: Store,
    address: str,
    named: str,
    bandit: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither the random half of a generated id nor a caller's id, nor a context."""
    features = PerArm(["mail", "call"], context={"street": Text(hash=1), "seen": Vector(3)})
    embedding = np.array([0.125, 0.75, 0.4711], dtype=np.float32)
    context = {"street": "Secret Lane 4711", "seen": embedding.tolist()}
    instance = Bandit(features, rewards=Explicit(), journal=store.journal(bandit))
    decision_id, own_id = instance.decide(context).id, new_id(instance.journal.now())
    ids = [decision_id, own_id, instance.decide(context, id="customer-4711", subject="someone").id]
    for id in ids:
        instance.observe(id, 1.0)
    instance.save()
    halves = [id[16:] for id in (decision_id, own_id)]
    texts = [
        b"customer-4711",
        b"Secret Lane 4711",
        embedding.tobytes(),
        *(half.encode() for half in halves),
    ]
    numbers = [bytes.fromhex(half) for half in halves] + [embedding.tobytes()]
    traces = [*texts, *numbers, *(number[::-1] for number in numbers)]

    def found() -> list[bytes]:
        if address.startswith("sqlite"):
            folder = Path(address.removeprefix("sqlite:///")).parent
            return [trace for trace in traces if holds(folder, trace)]
        server: PostgresServer = request.getfixturevalue("postgres")
        for table in TABLES:
            server.execute(f"VACUUM FULL belated.{table}")
        server.execute("CHECKPOINT")
        with psycopg.connect(address) as connection:  # what is compressed in the files, too
            rows = [
                row
                for table in TABLES
                for row in connection.execute(f"SELECT one::text FROM belated.{table} AS one")
            ]
        cells = repr(rows)
        return [trace for trace in traces if holds(server.tables, trace) or trace.hex() in cells]

    assert set(found()) >= {*texts}
    said(capsys, "erase", named, *ids, "--reason", "asked by the customer")
    instance.sync()
    instance.close()
    assert "6 events of erased decisions overwritten" in said(capsys, "erase", named, "--overwrite")
    assert found() == []
    said(capsys, "erase", named, *ids, "--reason", "asked again")
    export = tmp_path / "exported.jsonl"
    said(capsys, "export", named, "--output", str(export))
    assert not any(trace in export.read_bytes() for trace in traces)
    assert verified(capsys, named)["status"] == "ok"
    for id in ids:
        assert main(["journal", "show", id, named, "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["state"] == "erased"
    with Bandit(features, rewards=Explicit(), journal=store.journal(bandit)) as reopened:
        assert [reopened.observe(id, 1.0).status for id in ids] == ["erased"] * 3
        assert reopened.estimate.n == 0


def test_what_was_overwritten_without_an_erasure_is_damage(
    used: Bandit, named: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records cannot be blanked without a recorded erasure."""
    key = erased_key_of("order-1")
    with monkeypatch.context() as patch:
        record = Record(0, 1, 1, Erased(key, 1))
        patch.setattr(type(used.journal), "undone", lambda journal, partition: [record])
        assert used.journal.overwrite([key]) == 2
    (damage, *_) = verified(capsys, named, code=1)["damage"]
    assert "was overwritten, but no record erases its decision" in damage


def test_a_bandit_that_is_behind_meets_what_was_overwritten(
    used: Bandit, store: Store, bandit: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It folds the journal again without the erased events, and gets the same state."""
    fold = Fold(used.policy, used.rewards, partitions=2)
    fold.begin(used.journal)
    erase(capsys, named, "order-1")
    used.journal.overwrite([erased_key_of("order-1")])
    with pytest.raises(HistoryUndone):
        fold.catch_up(used.journal)
    fold.clear()
    fold.load(used.journal)
    fold.catch_up(used.journal)
    assert fold.digest == used.digest
