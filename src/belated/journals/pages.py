"""Read a partition of a log page by page."""

from __future__ import annotations

from collections.abc import Iterator

from belated.core.events import Record
from belated.journals.log import Log

#: Records per page.
PAGE = 10_000


def pages(
    log: Log, partition: int, after: int = 0, end: int | None = None, size: int = PAGE
) -> Iterator[list[Record]]:
    """Yield the records of a partition in order, in pages that are not empty.

    Args:
        log: to read.
        partition: its number.
        after: position after which to begin; records that were trimmed are skipped.
        end: last position to read; None: the end of the partition as it is now.
        size: records per page, at most.
    """
    position = max(after, log.start(partition).position)
    last = log.end(partition) if end is None else end
    while position < last:
        page = log.read(partition, position, min(size, last - position))
        while page and page[-1].position > last:  # positions may have gaps
            page.pop()
        if not page:
            return
        yield page
        position = page[-1].position
