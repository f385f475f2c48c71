"""``belated journal export``: write all records as JSON lines, or decisions for other tools.

``belated journal import`` reads the format ``records``. An export in this format contains all
records that exist when the command starts, ordered by ``recorded``, but no trimmed records.
Partitions are merged page by page, so that memory use is bounded.
:mod:`belated.cli.journal.lines` documents the lines.

The other formats have one line per decision with its outcome (:mod:`belated.evaluation.files`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from belated.cli.address import add_address, add_archive, ends_of, opened, starts_of
from belated.cli.journal.lines import FORMAT, End, Header, Line, line_of
from belated.cli.text import Progress
from belated.core.events import Decision, Record, digest_of, encode
from belated.evaluation.files import WRITERS, batches
from belated.evaluation.sources import read_journal
from belated.exceptions import InvalidInput
from belated.journals import Journal
from belated.journals.chain import Chain, Head
from belated.journals.pages import pages

EXAMPLE = "belated journal export sqlite:///offers.db | gzip > offers.jsonl.gz"

#: The lossless format.
RECORDS = "records"
#: Number of rows per write.
BATCH = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add_address(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="a new file; default: standard output"
    )
    parser.add_argument(
        "--format",
        choices=(RECORDS, *WRITERS),
        default=RECORDS,
        help="records: all records, lossless, for import (default); the others have one row per "
        "decision: parquet (requires the archive extra and --output), csv, jsonl, dsjson",
    )
    parser.add_argument(
        "--requests",
        action="store_true",
        help="include the request of each decision, which can contain personal data; always "
        "included in dsjson",
    )
    add_archive(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.format == "parquet" and options.output is None:
        raise InvalidInput("Parquet needs a file: add --output FILE", options.format)
    with (
        opened(options.address, options.archive) as (journal, bandit),
        _new_file(options.output) as output,
    ):
        if options.format != RECORDS:
            write_decisions(journal, options.format, options.requests, output)
            return
        starts = [start.position for start in starts_of(journal)]
        trimmed = starts if any(starts) else None
        header = Header(FORMAT, bandit.name, bandit.partitions, bandit.identity, trimmed)
        write(journal, header, output)


@contextmanager
def _new_file(path: str | None) -> Iterator[BinaryIO]:
    """Create a file, and delete it if the block raises an error."""
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        output = open(path, "xb")  # noqa: SIM115 - closed below, and deleted if incomplete
    except FileExistsError:
        raise InvalidInput(f"{path} already exists: choose another file", path) from None
    try:
        with output:
            yield output
    except BaseException:
        with suppress(OSError):
            Path(path).unlink()
        raise


def write_decisions(journal: Journal, format: str, requests: bool, output: BinaryIO) -> None:
    """Write one row per decision, in a format for other tools."""
    with Progress("read", sum(ends_of(journal))) as progress:
        table = read_journal(journal, step=progress.step)
    with Progress("exported", len(table)) as progress:
        source = journal if requests or format == "dsjson" else None
        WRITERS[format](batches(table, progress.step), source, output)
    output.flush()


def write(journal: Journal, header: Header, output: BinaryIO) -> None:
    """Write all records that currently exist."""
    ends = ends_of(journal)
    chains = [Chain() for _ in ends]
    encoder = msgspec.json.Encoder()
    output.write(encoder.encode(header) + b"\n")
    count = 0
    with Progress("exported", sum(ends)) as progress:
        stream = in_order(journal, ends, chains)
        while records := list(islice(stream, BATCH)):
            output.write(encoder.encode_lines(_lines(journal, records)))
            progress.step(len(records))
            count += len(records)
    output.write(encoder.encode_lines([End(count, str(Head.of(chains)))]))
    output.flush()


def _lines(journal: Journal, records: Sequence[Record]) -> list[Line]:
    """Convert records to lines, including the stored requests of decisions."""
    positions: dict[int, list[int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            positions.setdefault(record.partition, []).append(record.position)
    requests = {partition: journal.requests(partition, n) for partition, n in positions.items()}
    return [
        line_of(record, requests.get(record.partition, {}).get(record.position))
        for record in records
    ]


def in_order(journal: Journal, ends: list[int], chains: list[Chain]) -> Iterator[Record]:
    """Yield all records, ordered by ``recorded``, and add them to the partitions' chains."""
    streams = [
        _records(journal, partition, end, chain)
        for partition, (end, chain) in enumerate(zip(ends, chains, strict=True))
    ]
    return merge(*streams, key=attrgetter("recorded"))


def _records(journal: Journal, partition: int, end: int, chain: Chain) -> Iterator[Record]:
    for page in pages(journal, partition, end=end):
        # Use the digests that the events will have after an import.
        chain.add([replace(record, digest=digest_of(encode(record.event))) for record in page])
        yield from page
