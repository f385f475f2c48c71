"""``belated journal export``: write all records as JSON lines, or decisions for other tools.

``records`` is what ``belated journal import`` reads: every record of every partition as it was when
the command began, the decisions without a reward too, in the order of ``recorded``; what was
trimmed is not among them. Partitions are merged a page at a time, so memory is bounded.
:mod:`belated.cli.journal.lines` says what a line holds.

The other formats have one line a decision, with what has become of it
(:mod:`belated.evaluation.files`).
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

#: The format that holds everything.
RECORDS = "records"
#: Lines written at a time.
BATCH = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="a new file; to standard output without it"
    )
    parser.add_argument(
        "--format",
        choices=(RECORDS, *WRITERS),
        default=RECORDS,
        help="records: all of them, exactly, to be imported again (default); the others have one "
        "line a decision: parquet (needs the extra archive and --output), csv, jsonl, dsjson",
    )
    parser.add_argument(
        "--requests",
        action="store_true",
        help="with what each decision was chosen from, which can be personal data; dsjson always "
        "has it",
    )
    add_archive(parser)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    if options.format == "parquet" and options.output is None:
        raise InvalidInput("Parquet is not for a terminal: add --output FILE", options.format)
    with (
        opened(options.address, options.archive) as (journal, bandit),
        _new_file(options.output) as output,
    ):
        if options.format != RECORDS:
            write_decisions(journal, options.format, options.requests, output)
            return
        starts = [one.position for one in starts_of(journal)]
        trimmed = starts if any(starts) else None
        header = Header(FORMAT, bandit.name, bandit.partitions, bandit.identity, trimmed)
        write(journal, header, output)


@contextmanager
def _new_file(path: str | None) -> Iterator[BinaryIO]:
    """A file that was not there, and is removed if it was not written to its end."""
    if path is None:
        yield sys.stdout.buffer
        return
    try:
        output = open(path, "xb")  # noqa: SIM115 - closed below, and removed if cut off
    except FileExistsError:
        raise InvalidInput(f"{path} is there already: choose another file", path) from None
    try:
        with output:
            yield output
    except BaseException:
        with suppress(OSError):
            Path(path).unlink()
        raise


def write_decisions(journal: Journal, format: str, requests: bool, output: BinaryIO) -> None:
    """Write one line a decision, in one of the formats that other tools read."""
    with Progress("read", sum(ends_of(journal))) as progress:
        table = read_journal(journal, step=progress.step)
    with Progress("exported", len(table)) as progress:
        source = journal if requests or format == "dsjson" else None
        WRITERS[format](batches(table, progress.step), source, output)
    output.flush()


def write(journal: Journal, header: Header, output: BinaryIO) -> None:
    """Write all records there are by now."""
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
    """Records as lines, each decision with what it was chosen from."""
    made: dict[int, list[int]] = {}
    for record in records:
        if isinstance(record.event, Decision):
            made.setdefault(record.partition, []).append(record.position)
    found = {partition: journal.requests(partition, some) for partition, some in made.items()}
    return [line_of(one, found.get(one.partition, {}).get(one.position)) for one in records]


def in_order(journal: Journal, ends: list[int], chains: list[Chain]) -> Iterator[Record]:
    """The records of all partitions, by when they were recorded; they are chained on the way."""
    streams = [
        _records(journal, partition, end, chain)
        for partition, (end, chain) in enumerate(zip(ends, chains, strict=True))
    ]
    return merge(*streams, key=attrgetter("recorded"))


def _records(journal: Journal, partition: int, end: int, chain: Chain) -> Iterator[Record]:
    for page in pages(journal, partition, end=end):
        # Of the bytes that an import will make of the lines.
        chain.add([replace(one, digest=digest_of(encode(one.event))) for one in page])
        yield from page
