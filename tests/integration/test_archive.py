"""``belated journal archive``: archive and remaining journal are complete, on every store."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from belated.cli.main import main
from belated.core.events import Decision, SubjectDecision, SubjectReward
from belated.core.ids import new_id, slot_of_subject, subject_id
from belated.evaluation.sources import read_journal
from belated.exceptions import CorruptJournal, InvalidInput
from belated.fold.rules import State
from belated.journals import Journal, Store, open_journal
from belated.journals.archive import Archive, WholeJournal, name_of_day
from belated.journals.arrivals import erasure_of_subject
from belated.journals.folders import open_folder
from tests.integration.archived import (
    DAY,
    START,
    assert_same,
    begin,
    erase,
    fill,
    live,
    rebuilt,
)
from tests.integration.object_store import object_store

pq = pytest.importorskip("pyarrow.parquet")
DAYS = 8


@pytest.fixture
def used(store: Store, bandit: str) -> Iterator[Journal]:
    """Eight days of decisions, in two partitions."""
    with store.journal(bandit, partitions=2) as journal:
        begin(journal)
        fill(journal, 0, DAYS)
        yield journal


@pytest.fixture
def named(address: str, bandit: str) -> str:
    """The address of the journal."""
    return f"{address}?bandit={quote(bandit)}"


def day(n: int) -> str:
    """Return the name of a day of the journal."""
    return name_of_day(START // DAY + n)


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Return the output of a command."""
    capsys.readouterr()
    assert main(["journal", *map(str, arguments)]) == code
    output = capsys.readouterr()
    return output.out + output.err


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return all rows of an archive."""
    files = sorted(folder.glob("bandit=*/day=*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def blobs_in(value: Any) -> Iterator[bytes]:
    """Return all binary values in rows, however deeply nested."""
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from blobs_in(item)


def test_archive_and_journal_are_the_whole(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a trim, after it, and after more was archived."""
    folder = tmp_path / "archive"
    output = run(capsys, "archive", named, folder)
    assert f"archived, {day(-1)} to {day(4)}" in output
    assert "no further days" in run(capsys, "archive", named, folder)
    assert_same(rebuilt(used, folder), live(used))
    live(used).save(used)
    arguments = ["--older-than", "2d", "--archived", folder, "--reason", "archived"]
    assert "dropped, up to" in run(capsys, "trim", named, *arguments)
    assert any(used.start(p).position for p in range(2))
    assert_same(rebuilt(used, folder), live(used))
    fill(used, DAYS, 4)
    assert f"archived, {day(5)} to" in run(capsys, "archive", named, folder)
    assert_same(rebuilt(used, folder), live(used))
    live(used).save(used)
    run(capsys, "trim", named, *arguments)
    assert_same(rebuilt(used, folder), live(used))
    places = [(row["partition"], row["position"]) for row in rows_of(folder)]
    assert len({*places}) == len(places)


def test_a_row_says_what_the_journal_says(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """State, value, times and requests; an evaluation of the whole gives the same result."""
    folder = tmp_path / "archive"
    before = read_journal(used)
    run(capsys, "archive", named, folder)
    rows = {(row["partition"], row["position"]): row for row in rows_of(folder)}
    lines = {(int(before.partition[n]), int(before.position[n])): n for n in range(len(before))}
    assert set(rows) < set(lines)
    assert len(rows) > 1_000
    for place, row in rows.items():
        n = lines[place]
        assert row["id"] == before.ids[n]
        assert row["state"] == State(before.state[n]).name.lower()
        assert row["late"] == before.late[n]
        assert row["conflict"] == before.conflict[n]
        if row["value"] is not None:
            assert row["value"] == before.value[n]
        assert len(row["x"]) == 2
        if row["request"] is not None:
            assert row["offered"] == ["a0", "a1", "a2"]
            assert row["propensities"] == [0.4, 0.3, 0.3]
    live(used).save(used)
    run(capsys, "trim", named, "--older-than", "2d", "--archived", folder, "--reason", "it")
    journal = WholeJournal(used, Archive(folder, used.bandit))
    after = read_journal(journal)
    assert [*after.ids] == [*before.ids]
    np.testing.assert_array_equal(after.value, before.value)
    positions = before.position[before.partition == 0].tolist()
    assert len(journal.requests(0, positions)) > len(used.requests(0, positions))
    output = tmp_path / "out.jsonl"
    arguments = ["--format", "jsonl", "-o", output, "--archive", folder]
    run(capsys, "export", named, *arguments)
    assert len(output.read_text().splitlines()) == len(before)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux tells them")
def test_no_thread_is_left_that_aborts_at_exit(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arrow's threads used to end three of ten processes with SIGABRT at exit."""
    run(capsys, "archive", named, tmp_path)
    code = f"""
from pathlib import Path
import pyarrow
from belated.journals.archive import Archive

archive = Archive({str(tmp_path)!r}, {used.bandit!r})
before = len([*Path("/proc/self/task").iterdir()])
assert len(archive.positions(0, 0))
assert len([*Path("/proc/self/task").iterdir()]) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_that_is_not_archived_is_trimmed(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archive never has a gap."""
    folder = tmp_path / "archive"
    live(used).save(used)
    arguments = ["trim", named, "--older-than", "2d", "--reason", "it"]
    assert "no records of" in run(capsys, *arguments, "--archived", folder)
    assert "dropped, up to" in run(capsys, *arguments)
    assert "but not all of it was archived" in run(capsys, "archive", named, folder, code=2)
    with pytest.raises(InvalidInput, match="the records in between are in neither"):
        rebuilt(used, folder)


def test_what_was_erased_is_not_archived(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither its bytes nor its id are archived; the rest is unchanged."""
    folder, decision_id = tmp_path / "archive", new_id(START + DAYS * DAY)
    decision = Decision(decision_id, START, "a0", 0, np.ones(2, np.float32), 0.5, 0.4, 1)
    used.append([decision], recorded=[START + DAYS * DAY])
    fill(used, DAYS, 4, each=50)
    erase(used, "order-0-5")
    erase(used, decision_id)
    run(capsys, "archive", named, folder)
    assert "order-0-5" not in {row["id"] for row in rows_of(folder)}
    for file in folder.rglob("*"):
        if file.suffix in (".parquet", ".records"):
            assert "order-0-5'" not in repr(pq.ParquetFile(file).read().to_pylist())
            assert "order-0-5\\x" not in repr(pq.ParquetFile(file).read().to_pylist())
            for data in blobs_in(pq.ParquetFile(file).read().to_pylist()):
                assert decision_id[16:].encode() not in data
                assert bytes.fromhex(decision_id[16:]) not in data
    assert [*folder.glob(f"bandit=*/_others/{day(DAYS)}-*.records")]
    assert rebuilt(used, folder).digest == live(used).digest


def test_an_erased_subject_is_not_archived(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the id of an erased decision, which is also in the record of its subject."""
    now, subjects, visits = START + DAYS * DAY, ("person-4711", "person-4712"), []
    for subject in subjects:
        visits.append(new_id(now, slot_of_subject(subject)))
        decision = Decision(visits[-1], now, "a0", 0, np.ones(2, np.float32), 0.5, 0.4, 1)
        outcome = SubjectReward(subject, now, 1.0, f"sale of {subject}")
        used.append(
            [decision, SubjectDecision(subject, now, decision.id), outcome], recorded=[now] * 3
        )
    fill(used, DAYS, 4, each=50)
    records = used.records_of([subject_id(subjects[0])])
    used.append(erasure_of_subject(records, subjects[0], now, "asked for", "me"))
    erase(used, visits[1])
    run(capsys, "archive", named, tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".parquet", ".records")]
    blobs = [blob for file in files for blob in blobs_in(pq.ParquetFile(file).read().to_pylist())]
    for text in (subjects[0], visits[0][16:], visits[1][16:]):
        assert not any(text.encode() in blob for blob in blobs)
    assert any(subjects[1].encode() in blob for blob in blobs)
    assert rebuilt(used, tmp_path).digest == live(used).digest


def test_damage_is_noticed(
    used: Journal, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was changed is not read."""
    folder = tmp_path / "archive"
    run(capsys, "archive", named, folder)
    live(used).save(used)
    run(capsys, "trim", named, "--older-than", "2d", "--archived", folder, "--reason", "it")
    file = sorted(folder.glob("bandit=*/day=*/*.parquet"))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptJournal, match="changed or truncated"):
        rebuilt(used, folder)


def test_an_object_store_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same files under the same names, with the same content."""
    address = f"sqlite:///{tmp_path / 'offers.db'}"
    with open_journal(address) as journal, object_store(monkeypatch) as bucket:
        begin(journal)
        fill(journal, 0, 6, 100)
        folder = f"{bucket}/archive"
        run(capsys, "archive", address, folder)
        run(capsys, "archive", address, tmp_path / "local")
        local, remote = open_folder(tmp_path / "local"), open_folder(folder)
        names = local.names("bandit=default")
        assert len(names) > 8
        assert remote.names("bandit=default") == names
        assert [remote.read(name) for name in names] == [local.read(name) for name in names]
        assert "no further days" in run(capsys, "archive", address, folder)
        assert_same(rebuilt(journal, folder), live(journal))


def test_refusals_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a retention nothing is ever final; not every address is a folder."""
    address = f"sqlite:///{tmp_path / 'offers.db'}"
    with open_journal(address) as journal:
        begin(journal)
    output = run(capsys, "archive", address, tmp_path / "out", "--window", "1d", code=2)
    assert "has no retention" in output
    assert "no file system is installed for nowhere" in run(
        capsys, "archive", address, "nowhere://bucket", code=2
    )
