"""Write sample files of this release for later releases to read: ``python -m tests.golden.make``.

The script creates a folder named after the release. It contains journals in an SQLite file with
snapshots, one of them trimmed and with an erased decision; the same in a PostgreSQL dump; an export
and Kafka commits of one of them; an archive with its trimmed journal; a spool; a published model; a
token; and the expected state of all of them. Run it once per release, and never change the files of
an earlier one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from belated.cli.main import main
from belated.core.events import Decision, Event, encode
from belated.exceptions import JournalUnavailable
from belated.fold.published import PublishedModel
from belated.journals import MemoryJournal, SpoolJournal, SQLiteJournal
from belated.journals.log import Requests
from tests.golden.formats import make_archive, make_commits, make_dump, make_token
from tests.golden.history import (
    BANDITS,
    PARTITIONS,
    POLICY,
    START,
    TAIL,
    fill_and_trim,
    history,
    new_fold,
    requests_in,
    state_of,
)

HERE = Path(__file__).parent


class _Unavailable(MemoryJournal):
    """Refuses all appends, so that events go to the spool."""

    def append(
        self,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        raise JournalUnavailable("unavailable")


def make(folder: Path) -> None:
    """Write all files to a new folder."""
    folder.mkdir()
    expected: dict[str, Any] = {"bandits": {}}
    for bandit in BANDITS:
        path = folder / "journal.db"
        with SQLiteJournal(path, bandit=bandit, partitions=PARTITIONS) as journal:
            expected["bandits"][bandit] = state_of(fill_and_trim(journal, bandit))
            if bandit != "trimmed":
                expected["requests"] = requests_in(journal)
    lines = str(folder / "explicit.jsonl")
    assert main(["journal", "export", f"sqlite:///{path}?bandit=explicit", "-o", lines]) == 0
    waiting = [event for _, event in history()][:TAIL]
    with SpoolJournal(_Unavailable(), folder / "spool", wait=None, clock=lambda: START) as spool:
        for event in waiting:
            spool.append([event], requests={0: b"kept"} if isinstance(event, Decision) else None)
    expected["spool"] = [encode(event).hex() for event in waiting]
    fold = new_fold("default")
    with SQLiteJournal(path, bandit="default") as journal:
        fold.catch_up(journal)
    model = PublishedModel.of(
        fold.model, POLICY, positions=fold.positions, version=fold.version, at=START
    )
    (folder / "model").write_bytes(model.write())
    expected["model"] = {"theta": fold.model.theta.tolist(), "pending": fold.model.pending}
    expected["postgresql"] = make_dump(folder / "postgresql.dump")
    expected["archived"] = make_archive(folder)
    make_commits(folder / "kafka.json")
    (folder / "token").write_text(make_token(), encoding="utf-8")
    text = json.dumps(expected, indent=1) + "\n"
    (folder / "expected.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    release = HERE / version("belated")
    make(release)
    print(release)
