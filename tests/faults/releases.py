"""Other releases than this one, as source trees that processes run by their PYTHONPATH.

:func:`following` makes a possible next release: this one with tables of the next version and an
unknown kind of event. tests/containers has the same two as images.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import psycopg

import belated
from belated.journals.postgres.queries import VERSION
from tests.integration.processes import Process

#: A program of the following release that uses what is new; arguments: dsn, bandit, id.
NOTE = """
import sys
from belated.core.events import Noted
from belated.journals import PostgresJournal
with PostgresJournal(sys.argv[1], bandit=sys.argv[2]) as journal:
    journal.append([Noted(sys.argv[3], 5, "from a later release")])
"""
#: What the snapshots of a learner come to, in the eyes of the release that saved them; arguments:
#: dsn, bandit. Nothing is read beyond them.
SAVED = """
import json, sys
from belated import Bernoulli, DelayedUCB, Explicit
from belated.journals import PostgresJournal
from belated.fold.fold import Fold
with PostgresJournal(sys.argv[1], bandit=sys.argv[2]) as journal:
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=journal.partitions)
    fold.load(journal)
print(json.dumps({"positions": fold.positions, "digest": fold.digest, "n": fold.model.n}))
"""

_SOURCE = Path(belated.__file__).parent
_EVENT = '''class Noted(EventBase, tag=40, frozen=True):
    """Someone wrote something down; nothing is learned from it."""

    id: str
    at: int
    text: str


DecisionEvent = Noted | '''
_EDITS = {
    "journals/postgres/queries.py": {f"VERSION = {VERSION}": f"VERSION = {VERSION + 1}"},
    "core/events.py": {"\nDecisionEvent = ": f"\n{_EVENT}"},
    "fold/ledger.py": {
        "_OTHERS = {\n": "from belated.core.events import Noted\n"
        "_OTHERS = {\n    Noted: 'switched',\n"
    },
}
#: A table more, a column more where all is written, and a function in place of another.
_MIGRATION = """
CREATE TABLE belated.note (id text PRIMARY KEY, text text NOT NULL);
ALTER TABLE belated.record ADD COLUMN origin text NOT NULL DEFAULT '';
{function}
INSERT INTO belated.migration (version, oldest) VALUES ({version}, {oldest});
"""


class Release(ABC):
    """A release that can be run.

    Attributes:
        tables: the version of the tables that it needs.
    """

    tables: int

    @abstractmethod
    def run(self, *arguments: str) -> str:
        """Return what Python prints when it runs this with the release."""

    @abstractmethod
    def start(self, log: Path, command: str, file: Path, *options: str) -> Process:
        """Start a command that reads this configuration and keeps running."""

    def migrate(self, dsn: str, since: int) -> None:
        """Migrate as ``belated schema --from N | psql`` does."""
        steps = self.run("-m", "belated", "schema", "--from", str(since))
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(steps.encode())


@dataclass(frozen=True)
class SourceRelease(Release):
    """A release whose package is in a folder.

    Attributes:
        source: the folder.
    """

    source: Path
    tables: int

    def run(self, *arguments: str) -> str:
        """Return what Python prints when it runs this with the release."""
        environment = os.environ | {"PYTHONPATH": str(self.source)}
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=120
        ).stdout

    def start(self, log: Path, command: str, file: Path, *options: str) -> Process:
        """Start a process."""
        return Process(log, command, str(file), *options, PYTHONPATH=str(self.source))


def present() -> SourceRelease:
    """Return the current release."""
    return SourceRelease(_SOURCE.parent, VERSION)


def following(folder: Path) -> SourceRelease:
    """Return the next release."""
    package = folder / "belated"
    shutil.copytree(_SOURCE, package)
    _share_kernels(package)
    make_following(package)
    return _release(folder)


def make_following(package: Path) -> None:
    """Change a copy of this package into the next release."""
    for name, edits in _EDITS.items():
        for old, new in edits.items():
            _edit(package / name, old, new)
    sql = package / "journals" / "postgres" / "sql"
    schema = (sql / "schema.sql").read_text(encoding="utf-8")
    start = schema.index("CREATE FUNCTION belated.append")
    function = schema[start : schema.index("$$;", start) + 3]
    step = _MIGRATION.format(
        function=function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1),
        version=VERSION + 1,
        oldest=VERSION,
    )
    (sql / "migrations").mkdir(exist_ok=True)
    (sql / "migrations" / f"{VERSION + 1:04}_next.sql").write_text(step, encoding="utf-8")


def _release(source: Path) -> SourceRelease:
    """Return a release with its reported properties."""
    file = SourceRelease(source, 0).run("-c", "import belated; print(belated.__file__)").strip()
    assert Path(file).is_relative_to(source), f"another release was found, in {file}"
    steps = source.rglob("migrations/*.sql")
    return SourceRelease(source, max(int(step.name[:4]) for step in steps))


def _share_kernels(package: Path) -> None:
    """Share the compiled kernels, which are the same."""
    shutil.rmtree(package / "model" / "kernels")
    (package / "model" / "kernels").symlink_to(_SOURCE / "model" / "kernels")


def _edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    file.write_text(text.replace(old, new), encoding="utf-8")
