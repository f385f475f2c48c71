"""The SQL of the journal in PostgreSQL, as it stands in the files of ``sql/``."""

from __future__ import annotations

import itertools
import re
from functools import cache
from pathlib import Path

from belated.exceptions import JournalError

#: The version of the tables this release needs.
VERSION = 10

_FOLDER = Path(__file__).with_name("sql")


@cache
def query(name: str) -> bytes:
    """A query by its name in queries.sql.

    >>> query("has_tables")
    b"SELECT to_regclass('belated.migration') IS NOT NULL"
    """
    return _queries()[name]


@cache
def numbered(name: str) -> bytes:
    """The same with numbers for its values, in the order in which they stand.

    >>> numbered("make_partitions")[-46:]
    b'SELECT $1, generate_series(0, $2::integer - 1)'
    """
    count = itertools.count(1)
    return re.sub(rb"%\(\w+\)[bs]", lambda _: b"$%d" % next(count), query(name))


def schema() -> str:
    """All tables of the present version, for a database that has none."""
    return (_FOLDER / "schema.sql").read_text(encoding="utf-8")


def migrations(after: int = 0) -> list[str]:
    """What leads from a version of the tables to the present one, a step each.

    From none it is one step. Later versions have files in ``sql/migrations``, by their numbers.

    Raises:
        JournalError: no release had tables of that version.
    """
    if after == 0:
        return [schema()]
    steps = {int(step.name[:4]): step for step in (_FOLDER / "migrations").glob("*.sql")}
    wanted = range(after + 1, VERSION + 1)
    if not steps.keys() >= set(wanted):
        message = f"tables of version {after} are of no release, and nothing leads from there"
        raise JournalError(
            f"{message} to {VERSION}: export the journals with the belated that made them, and "
            "import them into a new database"
        )
    return [steps[version].read_text(encoding="utf-8") for version in wanted]


@cache
def _queries() -> dict[str, bytes]:
    text = (_FOLDER / "queries.sql").read_text(encoding="utf-8")
    found = re.findall(r"^-- (\w+): .+\n((?:(?!--).*\n)+)", text, re.MULTILINE)
    return {name: body.strip().rstrip(";").encode() for name, body in found}
