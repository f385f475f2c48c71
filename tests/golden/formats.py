"""What is kept beside SQLite: a dump of PostgreSQL, an archive, commits of Kafka, a token."""

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
    drop_links,
    fill_and_trim,
    fill_links,
    happened,
    request,
    told,
)
from tests.integration.postgres_server import PostgresServer, find_programs

#: Of the bandit whose old days are archived.
ARCHIVED = DefaultAfter(window=timedelta(hours=1))
RETENTION = 6 * HOUR
#: By which its time goes faster: a day and a half in all, and not two weeks.
FASTER = 12


def make_dump(file: Path) -> dict[str, Any]:
    """Write a database with all bandits as the guide says; returns what they come to."""
    server, expected = PostgresServer(), {}
    try:
        PostgresJournal.create_tables(server.dsn)
        for bandit in BANDITS:
            with PostgresJournal(server.dsn, bandit=bandit, partitions=PARTITIONS) as journal:
                expected[bandit] = told(fill_and_trim(journal, bandit))
        postgres("pg_dump", "-Fc", "-n", "belated", "-d", server.dsn, "-f", str(file))
    finally:
        server.stop()
    return expected


def postgres(program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL."""
    programs = find_programs()
    assert programs is not None
    subprocess.run([str(programs / program), *arguments], check=True)


def make_archive(folder: Path) -> dict[str, Any]:
    """Archive the days of a journal and drop what was archived; returns what all comes to."""
    stamps, events = map(list, zip(*_faster(), strict=True))
    requests = {n: request(one) for n, one in enumerate(events) if isinstance(one, Decision)}
    with SQLiteJournal(folder / "archived.db", bandit="archived", partitions=PARTITIONS) as journal:
        identify(journal, family=repr(POLICY.family), dim=POLICY.dim)
        journal.append(events, recorded=stamps, requests=requests)
        last = fill_links(journal, stamps[-1])
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
        connection.execute("VACUUM")  # the room of what was dropped need not be kept
    return told(fold)


def archived_fold() -> Fold:
    """An empty one of the bandit that is archived."""
    return Fold(POLICY, ARCHIVED, partitions=PARTITIONS, retention=RETENTION)


def _faster() -> Iterator[tuple[int, Event]]:
    for stamp, event in happened():
        yield (
            _sooner(stamp),
            Settled(event.partition, _sooner(event.until)) if isinstance(event, Settled) else event,
        )


def _sooner(stamp: int) -> int:
    return START + (stamp - START) // FASTER


def make_commits(file: Path) -> None:
    """Write what Kafka would keep of the first events: with stamps and requests, and without."""
    file.write_text(json.dumps([one.hex() for one in commits()], indent=1) + "\n", encoding="utf-8")


def commits() -> list[bytes]:
    """The values of two records."""
    stamps, events = map(list, zip(*list(happened())[:TAIL], strict=True))
    requests = {n: request(one) for n, one in enumerate(events) if isinstance(one, Decision)}
    packed = [encode(one) for one in events]
    return [pack(packed), pack(packed, stamps, requests)]


def make_token() -> str:
    """What a reward of the first decision is reported with."""
    decision = next(event for _, event in happened() if isinstance(event, Decision))
    return tokens().of(decision)


def tokens() -> RewardTokens:
    """Signed with a secret that is none."""
    secrets = TokenSecrets({"k1": bytes(range(32))})
    return RewardTokens(
        secrets, "explicit", mode="enforce", guarded=False, least=0.0, most=1.0,
        clock=lambda: START,
    )  # fmt: skip
