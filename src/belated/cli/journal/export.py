"""``belated journal export``: write all records as JSON lines.

Every record of every partition as it was when the command began, the decisions without a reward
too, in the order of ``recorded``: partitions are merged a page at a time, so memory is bounded.
:mod:`belated.cli.journal.lines` says what a line holds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from belated.cli.journal.address import add_address, opened, pages
from belated.cli.journal.lines import FORMAT, End, Header, line_of
from belated.cli.progress import Progress
from belated.events import Record, digest_of, encode
from belated.exceptions import InvalidInput
from belated.journals import Journal
from belated.journals.chain import Chain, Head

EXAMPLE = "belated journal export sqlite:///offers.db | gzip > offers.jsonl.gz"

#: Lines written at a time.
BATCH = 1_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_address(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="a new file; to standard output without it"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    with opened(options.address) as (journal, bandit):
        header = Header(FORMAT, bandit.name, bandit.partitions, bandit.identity)
        if options.output is None:
            write(journal, header, sys.stdout.buffer)
            return 0
        try:
            output = open(options.output, "xb")  # noqa: SIM115 - closed below, and removed if cut off
        except FileExistsError:
            message = f"{options.output} is there already: choose another file"
            raise InvalidInput(message, options.output) from None
        try:
            with output:
                write(journal, header, output)
        except BaseException:
            with suppress(OSError):
                Path(options.output).unlink()
            raise
    return 0


def write(journal: Journal, header: Header, output: BinaryIO) -> None:
    """Write all records there are by now."""
    ends = [journal.end(partition) for partition in range(journal.partitions)]
    chains = [Chain() for _ in ends]
    encoder = msgspec.json.Encoder()
    output.write(encoder.encode(header) + b"\n")
    count, lines = 0, []
    with Progress("exported", sum(ends)) as progress:
        for record in in_order(journal, ends, chains):
            lines.append(line_of(record))
            if len(lines) == BATCH:
                output.write(encoder.encode_lines(lines))
                progress.step(BATCH)
                count += BATCH
                lines.clear()
    end = End(count + len(lines), str(Head.of(chains)))
    output.write(encoder.encode_lines([*lines, end]))
    output.flush()


def in_order(journal: Journal, ends: list[int], chains: list[Chain]) -> Iterator[Record]:
    """The records of all partitions, by when they were recorded; they are chained on the way."""
    streams = [
        _records(journal, partition, end, chain)
        for partition, (end, chain) in enumerate(zip(ends, chains, strict=True))
    ]
    return merge(*streams, key=attrgetter("recorded"))


def _records(journal: Journal, partition: int, end: int, chain: Chain) -> Iterator[Record]:
    for page in pages(journal, partition, end):
        # Of the bytes that an import will make of the lines.
        chain.add([replace(one, digest=digest_of(encode(one.event))) for one in page])
        yield from page
