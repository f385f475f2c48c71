"""Files of earlier releases can be read, and give the same state.

`tests/golden/make.py` has written them, in a folder named after the release: every store, archives,
exports, snapshots, spools, models and tokens. Never change these files: a release that cannot read
one of them would lose what users have learned.
"""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated.cli.main import main
from belated.core.events import Decision, decode, encode
from belated.evaluation.sources import read_journal
from belated.exceptions import AccessDenied
from belated.fold import fold as folds
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import (
    Journal,
    MemoryJournal,
    PostgresJournal,
    SpoolJournal,
    SQLiteJournal,
)
from belated.journals.archive import Archive, WholeJournal
from belated.journals.kafka.commits import unpack
from belated.wire.messages import RewardBody
from tests.golden.formats import ARCHIVED, archived_fold, commits, postgres, tokens
from tests.golden.history import (
    BANDITS,
    PARTITIONS,
    POLICY,
    START,
    TAIL,
    history,
    new_fold,
    requests_in,
    state_of,
)
from tests.golden.make import HERE
from tests.integration.postgres_server import PostgresServer, StartPostgres

RELEASES = sorted(file.parent.name for file in HERE.glob("*/expected.json"))


@pytest.fixture(params=RELEASES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a copy of the files of a release."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / "golden"))


@pytest.fixture
def server(start_postgres: StartPostgres) -> Iterator[PostgresServer]:
    """Start a server without tables."""
    server = start_postgres()
    yield server
    server.stop()


def expected(golden: Path) -> dict[str, Any]:
    """Return the state that the release computed."""
    state: dict[str, Any] = json.loads((golden / "expected.json").read_text(encoding="utf-8"))
    return state


def check(fold: Fold, before: dict[str, Any]) -> None:
    """Assert that a fold has the state of the release."""
    state = state_of(fold)
    assert state.pop("theta") == pytest.approx(before.pop("theta"), rel=1e-6)
    assert state == before


def caught_up(journal: Journal, bandit: str, *, load: bool) -> Fold:
    """Return a fold of all records, with or without the snapshots."""
    fold = new_fold(bandit)
    if load:
        fold.load(journal)
    else:
        fold.begin(journal)
    fold.catch_up(journal)
    return fold


def test_there_is_one() -> None:
    """It has decisions in every state, and every kind of reward."""
    assert RELEASES
    bandits = expected(HERE / RELEASES[-1])["bandits"]
    states = {
        state for bandit in bandits.values() for state, count in bandit["counts"].items() if count
    }
    assert states == set(bandits["explicit"]["counts"]), states
    assert {"unmatched", "duplicate", "revised", "late", "switched", "configured"} <= set(
        bandits["explicit"]["counters"]
    )


def test_a_release_has_one() -> None:
    """Unless the version is in development: docs/contributing/release.md says when to write it."""
    project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    version = project["project"]["version"]
    assert ".dev" in version or version in RELEASES


def check_replay(journal: Journal, bandit: str, was: dict[str, Any], *, load: bool) -> None:
    """Check the state, then append further events."""
    fold = caught_up(journal, bandit, load=load)
    if bandit == "trimmed":
        assert min(journal.start(partition).position for partition in range(PARTITIONS)) > 0
        assert journal.decisions(["order 1"]) == {}
    else:
        assert requests_in(journal) == was["requests"]
    check(fold, was["bandits"][bandit])
    decision = Decision("new", 5, 0, 0, np.ones(3, np.float32), 0.5, 1.0, 7)
    journal.append([decision])
    assert fold.catch_up(journal) == 1


@pytest.mark.parametrize("bandit", BANDITS)
@pytest.mark.parametrize("load", [True, False])
def test_a_journal_is_replayed(golden: Path, bandit: str, load: bool) -> None:
    """From its snapshots, or from its beginning."""
    with SQLiteJournal(golden / "journal.db", bandit=bandit) as journal:
        check_replay(journal, bandit, expected(golden), load=load)


def test_a_dump_of_postgresql_is_restored(golden: Path, server: PostgresServer) -> None:
    """As in the guide, with its tables migrated; then as above."""
    dsn = f"{server.dsn.rpartition('/')[0]}/golden"
    postgres("psql", "-q", "-d", server.dsn, "-c", "CREATE DATABASE golden")
    dump = str(golden / "postgresql.dump")
    postgres("pg_restore", "--single-transaction", "-d", dsn, dump)
    PostgresJournal.create_tables(dsn)
    expectation = expected(golden)
    expectation["bandits"] = expectation["postgresql"]
    for bandit in BANDITS:
        with PostgresJournal(dsn, bandit=bandit) as journal:
            check(caught_up(journal, bandit, load=True), expected(golden)["postgresql"][bandit])
            check_replay(journal, bandit, expectation, load=False)


def test_an_archive_and_what_is_left_are_the_whole(golden: Path) -> None:
    """Dropped records are only in the archive; the base that replaces them gives the same state."""
    pytest.importorskip("pyarrow")
    expectation = expected(golden)["archived"]
    with SQLiteJournal(golden / "archived.db", bandit="archived") as journal:
        assert min(journal.start(partition).position for partition in range(PARTITIONS)) > 0
        whole_journal = WholeJournal(journal, Archive(golden / "archive", "archived"))
        fold = archived_fold()
        fold.begin(whole_journal)
        fold.catch_up(whole_journal)
        check(fold, dict(expectation))
        fold = archived_fold()
        fold.begin(journal)
        fold.catch_up(journal)
        check(fold, dict(expectation))
        table = read_journal(whole_journal, rewards=ARCHIVED)
        assert len(table) == fold.counters["decided"]


def test_commits_of_kafka_are_read(golden: Path) -> None:
    """With events, stamps and requests; writing them gives the same bytes."""
    blobs = [bytes.fromhex(text) for text in json.loads((golden / "kafka.json").read_text())]
    assert blobs == commits()
    plain_commit, full_commit = (unpack(value, 0, START) for value in blobs)
    stamps, events = zip(*list(history())[:TAIL], strict=True)
    for commit in (plain_commit, full_commit):
        assert [decode(bytes(commit.event(n))) for n in range(len(commit))] == list(events)
    assert plain_commit.recorded.tolist() == [START] * TAIL
    assert full_commit.recorded.tolist() == list(stamps)
    decisions = [n for n, event in enumerate(events) if isinstance(event, Decision)]
    assert sorted(full_commit.requests()) == decisions


def test_a_token_is_good(golden: Path) -> None:
    """It was issued with a decision, and the reward may arrive after an upgrade."""
    token = (golden / "token").read_text(encoding="utf-8")
    tokens().check("order 0", RewardBody(1.0, token=token), keyed=False)
    with pytest.raises(AccessDenied):
        tokens().check("order 1", RewardBody(1.0, token=token), keyed=False)


def test_a_snapshot_in_an_unknown_format_is_ignored(
    golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is older or newer: it can be rebuilt from the journal."""
    with SQLiteJournal(golden / "journal.db", bandit="explicit") as journal:
        monkeypatch.setattr(folds, "VERSION", 99)
        fold = new_fold("explicit")
        fold.load(journal)
        assert fold.positions == [0] * PARTITIONS
        fold.catch_up(journal)
        check(fold, expected(golden)["bandits"]["explicit"])
        fold.save(journal)
        monkeypatch.undo()
        check(caught_up(journal, "explicit", load=True), expected(golden)["bandits"]["explicit"])


def test_exported_lines_are_imported(golden: Path) -> None:
    """Into a journal with the same partitions and records."""
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
        requests = journal.requests(0, [record.position for record in records])
    assert [encode(record.event).hex() for record in records] == expected(golden)["spool"]
    positions = [record.position for record in records if isinstance(record.event, Decision)]
    assert requests == dict.fromkeys(positions, b"kept")


def test_a_model_is_taken(golden: Path) -> None:
    """With the same numbers, and the same name of its policy."""
    model = PublishedModel.read((golden / "model").read_bytes()).model(POLICY)
    expectation = expected(golden)["model"]
    assert {"theta": model.theta.tolist(), "pending": model.pending} == expectation


def test_the_codec_writes_what_it_wrote(golden: Path) -> None:
    """Known events have the same bytes, by which retries are recognized."""
    encodings = [encode(event).hex() for _, event in history()]
    expectation = expected(golden)["spool"]
    assert encodings[: len(expectation)] == expectation
