"""What an error of SQLite means for a journal."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from belated.exceptions import CorruptJournal, JournalUnavailable, NotAJournal

_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}
_NOT_ALLOWED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


def translated(
    error: sqlite3.DatabaseError | UnicodeDecodeError, verb: str, path: Path
) -> Exception:
    """The error to raise in its place; itself, if there is none."""
    if isinstance(error, UnicodeDecodeError):  # raised for SQLite's message about the schema
        message = f"{str(path)!r} is damaged (its schema is not text): restore a backup"
        return CorruptJournal(message)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return NotAJournal(f"{str(path)!r} is no database of SQLite: choose another file")
    if code == sqlite3.SQLITE_CORRUPT:
        message = (
            f"{str(path)!r} is damaged ({error}): restore a backup, or save what can be read "
            "with the `.recover` command of sqlite3"
        )
        return CorruptJournal(message)
    if code in _NOT_ALLOWED:
        message = (
            f"could not {verb} {str(path)!r}: {error}; see that its folder is there, and that "
            "folder and file may be written to"
        )
        return JournalUnavailable(message)
    if code in _PASSING:
        message = (
            f"could not {verb} {str(path)!r}: {error}; nothing was acknowledged, and trying "
            "again is safe"
        )
        return JournalUnavailable(message)
    return error
