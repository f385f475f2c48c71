"""Cells in PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from belated.journals.cells import NO_VERSIONS, Cell, Outcome
from belated.journals.postgres import open_session
from belated.journals.postgres.queries import Packed, pack_bytes, pack_integers, pack_texts

if TYPE_CHECKING:
    from belated.journals.postgres.session import PostgresSession, Row, Talk


class PostgresCells:
    """Cells stored in one database; see :class:`~belated.journals.cells.Cells`.

    Args:
        dsn: Address of the database, or a session to share.
        wait: Seconds to wait for the server.
    """

    def __init__(self, dsn: str | PostgresSession, *, wait: float = 10.0) -> None:
        self._session = open_session(dsn, wait)

    def get(self, names: Iterable[str], known: Mapping[str, int] = NO_VERSIONS) -> dict[str, Cell]:
        """Return cells by name; see :meth:`Cells.get`."""
        unique = list(dict.fromkeys(names))
        versions = [known.get(name) for name in unique]
        return _read(self._session.run_query("cells", names=unique, known=versions))

    def scan(self, prefix: str) -> dict[str, Cell]:
        """Return all cells whose names start with a prefix; see :meth:`Cells.scan`."""
        return _read(self._session.run_query("scan", prefix=prefix))

    def transact(
        self, expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str] = ()
    ) -> Outcome:
        """Write and delete cells if versions are as expected; see :meth:`Cells.transact`."""
        if not expected and not puts and not deletes:
            return Outcome(True, self._session.run_query("clock")[0][0])
        result = self._session.call("transact", [*_packed(expected, puts, deletes).values()])
        assert result is not None
        time = int.from_bytes(result, signed=True)  # negative if versions were not as expected
        return Outcome(time > 0, abs(time))

    def close(self) -> None:
        """Close the connection; any later call raises :class:`JournalClosed`."""
        self._session.close()


def put_within(talk: Talk, puts: Mapping[str, bytes]) -> None:
    """Write cells within a transaction."""
    talk.run_query("transact", **_packed({}, puts, ()))


def _packed(
    expected: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str]
) -> dict[str, Packed]:
    """Return the parameters of the query ``transact``, in order."""
    return {
        "expected": pack_texts(expected),
        "versions": pack_integers([*expected.values()], 8),
        "puts": pack_texts(puts),
        "contents": pack_bytes(puts.values()),
        "deletes": pack_texts(deletes),
    }


def _read(rows: list[Row]) -> dict[str, Cell]:
    return {name: Cell(version, stamp, value) for name, version, stamp, value in rows}
