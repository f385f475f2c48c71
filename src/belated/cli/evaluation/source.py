"""The journal whose decisions are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from belated.cli.journal.address import ends_of, opened
from belated.cli.progress import Progress
from belated.evaluation import JournalEvaluation


@contextmanager
def evaluation_of(address: str, archive: str | None = None) -> Iterator[JournalEvaluation]:
    """The journal at an address, with its archive if one is given; it says what its bandit is."""
    with (
        opened(address, archive) as (journal, _),
        Progress("read", sum(ends_of(journal))) as progress,
    ):
        yield JournalEvaluation.of_journal(journal, step=progress.step)
