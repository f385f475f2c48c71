"""Write the other golden files: a PostgreSQL dump, an archive, Kafka commits and a token."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from belated import DefaultAfter
from belated.core.events import Decision, Event, Settled, encode
from belated.evaluation.archiving import archive_journal
from belated.fold.fold import Fold
from belated.journals import PostgresJournal, SQLiteJournal
from belated.journals.archive import Archive
from belated.journals.identity import identify
from belated.journals.kafka.commits import pack
from belated.service.access.tokens import RewardTokens, TokenSecrets
from tests.golden.history import (
    BANDITS,
    HOUR,
    PARTITIONS,
    POLICY,
    START,
    TAIL,
    append_links,
    drop_links,
    fill_and_trim,
    history,
    requests_of,
    state_of,
)
from tests.integration.postgres_server import PostgresServer, find_programs

#: The rewards of the archived bandit.
ARCHIVED = DefaultAfter(window=timedelta(hours=1))
RETENTION = 6 * HOUR
#: Its history is this much shorter: a day and a half instead of two weeks.
COMPRESSION = 12


def make_dump(file: Path) -> dict[str, Any]:
    """Dump a database with all bandits as the guide describes; return their states."""
    server, expected = PostgresServer(), {}
    try:
        PostgresJournal.create_tables(server.dsn)
        for bandit in BANDITS:
            with PostgresJournal(server.dsn, bandit=bandit, partitions=PARTITIONS) as journal:
                expected[bandit] = state_of(fill_and_trim(journal, bandit))
        postgres("pg_dump", "-Fc", "-n", "belated", "-d", server.dsn, "-f", str(file))
    finally:
        server.stop()
    return expected


def postgres(program: str, *arguments: str) -> None:
    """Run one of PostgreSQL's programs."""
    programs = find_programs()
    assert programs is not None
    subprocess.run([str(programs / program), *arguments], check=True)


def make_archive(folder: Path) -> dict[str, Any]:
    """Archive the days of a journal and trim the archived records; return the state."""
    stamps, events = map(list, zip(*_compressed(), strict=True))
    requests = requests_of(events)
    with SQLiteJournal(folder / "archived.db", bandit="archived", partitions=PARTITIONS) as journal:
        identify(journal, family=repr(POLICY.family), dim=POLICY.dim)
        journal.append(events, recorded=stamps, requests=requests)
        last = append_links(journal, stamps[-1])
        late = last + 48 * HOUR
        journal.append([Settled(p, late) for p in range(PARTITIONS)], recorded=[late] * PARTITIONS)
        fold = archived_fold()
        fold.catch_up(journal)
        archive_journal(
            journal,
            Archive(folder / "archive", "archived"),
            rewards=ARCHIVED,
            retention=RETENTION,
            support=POLICY.family.support,
        )
        drop_links(journal, fold, archived_fold(), last + 1)
    with closing(sqlite3.connect(folder / "archived.db")) as connection:
        connection.execute("VACUUM")  # keep the file small
    return state_of(fold)


def archived_fold() -> Fold:
    """Return an empty fold of the archived bandit."""
    return Fold(POLICY, ARCHIVED, partitions=PARTITIONS, retention=RETENTION)


def _compressed() -> Iterator[tuple[int, Event]]:
    for stamp, event in history():
        yield (
            _compress(stamp),
            Settled(event.partition, _compress(event.until))
            if isinstance(event, Settled)
            else event,
        )


def _compress(stamp: int) -> int:
    return START + (stamp - START) // COMPRESSION


def make_commits(file: Path) -> None:
    """Write the first events as Kafka records: one with timestamps and requests, one without."""
    values = [value.hex() for value in commits()]
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def commits() -> list[bytes]:
    """Return the values of two Kafka records."""
    stamps, events = map(list, zip(*list(history())[:TAIL], strict=True))
    packed = [encode(event) for event in events]
    return [pack(packed), pack(packed, stamps, requests_of(events))]


def make_token() -> str:
    """Return the reward token of the first decision."""
    decision = next(event for _, event in history() if isinstance(event, Decision))
    return tokens().of(decision)


def tokens() -> RewardTokens:
    """Return the signer of tokens, with a public secret."""
    secrets = TokenSecrets({"k1": bytes(range(32))})
    return RewardTokens(
        secrets, "explicit", mode="enforce", guarded=False, least=0.0, most=1.0,
        clock=lambda: START,
    )  # fmt: skip
