"""``belated journal import``: make a journal of exported records, or of another system's log.

Records keep their stamps and their order, in any number of partitions.
:mod:`belated.cli.journal.repartition` says what becomes of those that each partition has for
itself. :mod:`belated.evaluation.logs` says what is read of other logs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import msgspec

from belated.cli.journal.foreign import import_foreign
from belated.cli.journal.lines import (
    FORMAT,
    End,
    Header,
    check_values,
    read_header,
    read_line,
    record_of,
    request_of,
)
from belated.cli.journal.repartition import repartitioned
from belated.cli.progress import Progress
from belated.cli.text import several
from belated.evaluation.logs import READERS
from belated.events import Decision, Record, digest_of, encode
from belated.exceptions import InvalidInput, UnsupportedFormat
from belated.ids import check_partitions
from belated.journals import open_store, split_address
from belated.journals.chain import Chain, Head

EXAMPLE = "belated journal import offers.jsonl sqlite:///new.db --partitions 4"

#: Records written at a time.
PAGE = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("source", metavar="FILE", help="from `export`; - for standard input")
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="sqlite:///new.db (a new file) or postgresql://user@host/name, with ?bandit=NAME for "
        "another name than it had",
    )
    parser.add_argument(
        "--format",
        choices=("records", *READERS),
        default="records",
        help="records: from `export`, exactly (default); logs of other systems, to be evaluated: "
        "dsjson (Vowpal Wabbit), obp (bandit_feedback of Open Bandit Pipeline as .npz)",
    )
    parser.add_argument(
        "--partitions", type=int, metavar="P", help="a power of two; as it was if not given"
    )


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    if options.format != "records":
        with _source(options.source) as source:
            return import_foreign(source, options.source, options.format, options.address)
    place, name = split_address(options.address)
    store = open_store(place)
    with _source(options.source) as source:
        lines = Lines(source, options.source)
        header = lines.header
        if header.trimmed is not None:
            message = (
                f"{options.source} lacks {several(sum(header.trimmed), 'record')} that had been "
                "trimmed: a journal of the others would learn something else. To move a trimmed "
                "journal, copy its store"
            )
            raise InvalidInput(message, options.source)
        partitions = header.partitions if options.partitions is None else options.partitions
        check_partitions(partitions)
        bandit = header.bandit if place == options.address else name
        with store.new_journal(bandit, partitions=partitions) as journal:
            if header.identity is not None:
                journal.identify(header.identity)
            with Progress("imported") as progress:
                for page in _in_pages(repartitioned(lines, header.partitions, partitions)):
                    journal.import_records(page, requests=lines.requests_of(page))
                    progress.step(len(page))
    parts = several(partitions, "partition")
    print(f"{several(lines.count, 'record')} imported as bandit {bandit} of {parts}")
    return 0


class Lines:
    """The records in an exported file, checked one by one.

    Args:
        source: of the lines.
        name: of the file, for people.
    """

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source = enumerate(source, start=1)
        self._name = name
        self.header = self._header()
        self._dim = _dim_of(self.header)
        self.count = 0
        self._chains = [Chain() for _ in range(self.header.partitions)]
        self._requests: dict[tuple[int, int], bytes] = {}  # by partition and position in the file

    def __iter__(self) -> Iterator[Record]:
        positions = [0] * self.header.partitions
        stamp = 0
        for number, text in self._source:
            try:
                line = read_line(text)
                if isinstance(line, End):
                    self._check_end(number, line)
                    return
                record = record_of(line)
                data = encode(record.event)  # what cannot be written is found here, with its line
                check_values(record.event, self._dim)
            except (msgspec.MsgspecError, ValueError, OverflowError) as error:
                raise self._wrong(number, str(error)) from None
            if record.partition not in range(len(positions)):
                raise self._wrong(number, f"there is no partition {record.partition}")
            if record.position <= positions[record.partition]:
                raise self._wrong(number, f"position {record.position} is out of order")
            if record.recorded < stamp:
                raise self._wrong(number, "it was recorded before the line above")
            positions[record.partition] = record.position
            stamp = record.recorded
            self.count += 1
            named = msgspec.structs.replace(record, digest=digest_of(data))
            self._chains[record.partition].add((named,))
            if (request := request_of(line)) is not None:
                self._requests[record.partition, record.position] = request
            yield record
        message = f"{self._name} is cut off: its last line does not say that it is the end"
        raise InvalidInput(message, self._name)

    def requests_of(self, records: Sequence[Record]) -> dict[int, bytes]:
        """What decisions among these records were chosen from, by their place; told once."""
        found = {
            n: self._requests.pop((record.partition, record.position), None)
            for n, record in enumerate(records)
            if isinstance(record.event, Decision)
        }
        return {n: request for n, request in found.items() if request is not None}

    def _header(self) -> Header:
        number, text = next(self._source, (1, b""))
        try:
            header = read_header(text)
            if header.format > FORMAT:
                message = f"{self._name} has format {header.format}: upgrade belated"
                raise UnsupportedFormat(message)
            check_partitions(header.partitions)
        except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError) as error:
            message = f"{self._name} is no exported journal: {error}"
            raise InvalidInput(message, number) from None
        return header

    def _check_end(self, number: int, line: End) -> None:
        if line.records != self.count:
            message = f"{line.records} records were written, and {self.count} are here"
            raise InvalidInput(message, number)
        if line.head and line.head != str(found := Head.of(self._chains)):
            message = (
                f"{self._name} was changed: its records have the head {found}, and {line.head} was "
                "exported"
            )
            raise InvalidInput(message, number)
        for after, text in self._source:
            if text.strip():
                raise self._wrong(after, "it stands behind the end")

    def _wrong(self, number: int, why: str) -> InvalidInput:
        return InvalidInput(f"{self._name}, line {number}: {why}", number)


def _dim_of(header: Header) -> int | None:
    """The width of the rows, if the header says it."""
    text = (header.identity or {}).get("dim", "")
    return int(text) if text.isdecimal() else None


def _in_pages(records: Iterable[Record]) -> Iterator[list[Record]]:
    page = []
    for record in records:
        page.append(record)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise InvalidInput(f"{name}: there is no such file", name) from None
    with file:
        yield file
