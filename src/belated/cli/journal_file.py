"""A journal that is there already: what its file holds, and how it is opened.

To look must not change anything, and to open a :class:`SQLiteJournal` makes what is not there. So a
file is first looked at through a connection that cannot write.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from belated.events import Record
from belated.exceptions import ForeignFile, InvalidInput, NewerFormat
from belated.journals import Journal, SQLiteJournal
from belated.journals.sqlite.file import APPLICATION_ID, FORMAT

#: Records read at a time.
PAGE = 10_000


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot without its pieces."""

    partition: int
    position: int
    fingerprint: str
    bytes: int


@dataclass(frozen=True)
class StoredBandit:
    """A bandit in a file.

    Attributes:
        name: of the bandit.
        partitions: how many there are.
        identity: what the bandit is; None if none has used it yet.
        snapshots: at most one for each partition.
    """

    name: str
    partitions: int
    identity: dict[str, str] | None
    snapshots: list[StoredSnapshot]


def stored_bandits(file: str) -> list[StoredBandit]:
    """All bandits in a file, by name."""
    with _looking_into(file) as connection:
        application, version = connection.execute(
            "SELECT application_id, user_version FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != APPLICATION_ID:
            raise ForeignFile(f"{file}: this is no journal of belated")
        if version > FORMAT:
            message = f"it has format {version}, and this release knows {FORMAT} at most"
            raise NewerFormat(f"{file}: {message}: upgrade belated")
        return [
            StoredBandit(
                name,
                partitions,
                None if identity is None else json.loads(identity),
                [
                    StoredSnapshot(*row)
                    for row in connection.execute(
                        "SELECT partition, position, fingerprint, coalesce(sum(length(data)), 0) "
                        "FROM snapshot LEFT JOIN piece USING (bandit, partition) "
                        "WHERE bandit = ? GROUP BY partition ORDER BY partition",
                        (number,),
                    )
                ],
            )
            for number, name, partitions, identity in connection.execute(
                "SELECT number, name, partitions, identity FROM bandit ORDER BY name"
            ).fetchall()
        ]


def stored_bandit(file: str, name: str | None) -> StoredBandit:
    """One of them: the named one, or the only one."""
    found = stored_bandits(file)
    names = ", ".join(repr(one.name) for one in found)
    if not found:
        raise InvalidInput(f"{file}: this journal holds no bandit", file)
    if name is None:
        if len(found) == 1:
            return found[0]
        raise InvalidInput(f"{file} holds {names}: say which with --bandit", file)
    for one in found:
        if one.name == name:
            return one
    raise InvalidInput(f"{file} holds no bandit {name!r}, but {names}", name)


def open_journal(file: str, bandit: StoredBandit) -> SQLiteJournal:
    """The journal of a bandit that was found in a file."""
    return SQLiteJournal(file, bandit=bandit.name)


def pages(journal: Journal, partition: int, end: int) -> Iterator[list[Record]]:
    """The records of a partition up to a position, so many at a time."""
    position = 0
    while position < end:
        page = journal.read(partition, position, min(PAGE, end - position))
        while page and page[-1].position > end:  # where positions have gaps
            page.pop()
        if not page:
            return
        yield page
        position = page[-1].position


@contextmanager
def _looking_into(file: str) -> Iterator[sqlite3.Connection]:
    path = Path(file)
    if not path.exists():
        raise InvalidInput(f"{file}: there is no such file", file)
    if not path.is_file():
        raise InvalidInput(f"{file}: this is no file", file)
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as found:
            yield found
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise ForeignFile(f"{file}: this is no journal of belated") from None
        raise ForeignFile(f"{file}: this cannot be read as a journal ({error})") from None
