"""What a file of SQLite holds, seen through a connection that cannot change it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from belated.exceptions import InvalidInput, NotAJournal, UnsupportedFormat
from belated.journals.sqlite.cells import scan
from belated.journals.sqlite.errors import translated
from belated.journals.sqlite.file import APPLICATION_ID, FORMAT
from belated.journals.store import StoredBandit, stored_bandits


@contextmanager
def looking_into(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a journal file that is there, to read only.

    Raises:
        InvalidInput: there is no such file.
        NotAJournal: it is no journal, or cannot be read as one.
        CorruptJournal: its schema is damaged.
        UnsupportedFormat: a newer release has made it.
    """
    if not path.is_file():
        what = "this is no file" if path.exists() else "there is no such file"
        raise InvalidInput(f"{path}: {what}", path)
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            application, version = connection.execute(
                "SELECT application_id, user_version "
                "FROM pragma_application_id, pragma_user_version"
            ).fetchone()
            if application != APPLICATION_ID:
                raise NotAJournal(f"{path}: this is no journal of belated")
            if version > FORMAT:
                message = f"it has format {version}, and this release knows {FORMAT} at most"
                raise UnsupportedFormat(f"{path}: {message}: upgrade belated")
            yield connection
    except UnicodeDecodeError as error:
        raise translated(error, "read", path) from None
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise NotAJournal(f"{path}: this is no journal of belated") from None
        raise NotAJournal(f"{path}: this cannot be read as a journal ({error})") from None


def bandits_in(path: Path) -> list[StoredBandit]:
    """Return what a file holds of each bandit, by name."""
    with looking_into(path) as connection:
        return stored_bandits(scan(connection, "bandit/"), scan(connection, "snapshot/"))
