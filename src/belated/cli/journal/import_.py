"""``belated journal import``: create a journal from exported records, or from a log in any format.

Records keep their timestamps and order, even if the number of partitions changes.
:func:`repartitioned` documents how partition-specific records are converted.
:mod:`belated.evaluation.logs` and :mod:`belated.evaluation.frames` document how other logs are
read.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from belated.cli.address import address_in
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
from belated.cli.options import add_option, time
from belated.cli.text import Progress, several
from belated.core.events import (
    Decision,
    Opaque,
    Record,
    Retracted,
    Reward,
    Settled,
    SubjectReward,
    digest_of,
    encode,
)
from belated.core.ids import check_partitions
from belated.core.times import as_datetime
from belated.evaluation import Log
from belated.evaluation.logs import READERS, import_log
from belated.exceptions import InvalidInput, UnsupportedFormat, extra
from belated.expressions import as_features, as_semantics
from belated.fold.contexts import name_of
from belated.journals import open_store
from belated.journals.addresses import split_address
from belated.journals.chain import Chain, Head

EXAMPLE = "belated journal import offers.jsonl sqlite:///new.db --partitions 4"

#: Number of records per write.
PAGE = 10_000
#: Formats with one row per decision, and formats by file name extension.
FRAMES = ("parquet", "csv")
_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".dsjson": "dsjson", ".npz": "obp"}
#: Columns in files with one row per decision.
COLUMNS = {
    "action": "the chosen action",
    "propensity": "probability of the chosen action, or a list with all probabilities",
    "reward": "the reward, null if there is none yet",
    "decided_at": "when the decision was made",
    "rewarded_at": "when the reward arrived, null if there is none yet",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("source", metavar="FILE", help="an export or a log; - for standard input")
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="sqlite:///new.db (a new file) or postgresql://user@host/name, with ?bandit=NAME to "
        "rename the bandit",
    )
    add_option(
        parser, "--into", "ADDRESS, for use after options with several values", metavar="ADDRESS"
    )
    parser.add_argument(
        "--format",
        choices=("records", *FRAMES, *READERS),
        help="records: from `export`, lossless; logs of other systems: parquet and csv (a row per "
        "decision), dsjson (Vowpal Wabbit), obp (bandit_feedback of Open Bandit Pipeline as .npz); "
        "default: by the extension of FILE, otherwise records",
    )
    add_option(
        parser, "--partitions", "a power of two; default: as in the export", int, metavar="P"
    )
    group = parser.add_argument_group("parquet and csv", "columns; times need a time zone")
    about = "meaning of a missing reward: Explicit() or \"ConversionsOnly('7d')\""
    add_option(group, "--rewards", about)
    add_option(group, "--context", "context of the decision", nargs="+", metavar="COLUMN")
    for name, about in COLUMNS.items():
        flag = f"--{name.replace('_', '-')}"
        add_option(group, flag, f"{about}; default: {name}", metavar="COLUMN")
    add_option(group, "--id", "decision ids; default: row numbers", metavar="COLUMN")
    about = "features; default: PerArm, fitted to the contexts"
    add_option(group, "--features", about)
    add_option(group, "--as-of", "ignore everything that happened after this time", time)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    address = options.into or options.address
    if address is None:
        message = "the address to import to is missing: add an address"
        raise InvalidInput(f"{message}, such as --into sqlite:///offers.db?bandit=offers", None)
    address = address_in(address, new=True) or address
    format = options.format or _BY_ENDING.get(Path(options.source).suffix, "records")
    if format in FRAMES:
        import_frame(options, format, address)
        return
    if format in READERS:
        with _source(options.source) as source:
            import_foreign(source, options.source, format, address)
        return
    place, name = split_address(address)
    store = open_store(place)
    with _source(options.source) as source:
        lines = Lines(source, options.source)
        header = lines.header
        if header.trimmed is not None:
            message = (
                f"{options.source} lacks {several(sum(header.trimmed), 'record')} that had been "
                "trimmed, without which a bandit would learn something different: to move a "
                "trimmed journal, copy its store"
            )
            raise InvalidInput(message, options.source)
        partitions = header.partitions if options.partitions is None else options.partitions
        check_partitions(partitions)
        bandit = header.bandit if place == address else name
        with store.new_journal(bandit, partitions=partitions) as journal:
            if header.identity is not None:
                journal.identify(header.identity)
            with Progress("imported") as progress:
                records = repartitioned(lines, header.partitions, partitions)
                while page := list(islice(records, PAGE)):
                    journal.import_records(page, requests=lines.requests_of(page))
                    progress.step(len(page))
    parts = several(partitions, "partition")
    print(f"{several(lines.count, 'record')} imported as bandit {bandit}, in {parts}")


class Lines:
    """The records in an exported file, validated one by one.

    Args:
        source: the file, opened for reading.
        name: the name of the file, for error messages.
    """

    def __init__(self, source: BinaryIO, name: str) -> None:
        self._source = enumerate(source, start=1)
        self._name = name
        self.header = self._header()
        self._dim = _dim_of(self.header)
        self._features = name_of((self.header.identity or {}).get("features", ""))
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
                data = encode(record.event)  # raises an error if the event cannot be encoded
                check_values(record.event, self._dim, self._features)
            except (msgspec.MsgspecError, ValueError, OverflowError) as error:
                raise self._wrong(number, str(error)) from None
            if record.partition not in range(len(positions)):
                raise self._wrong(number, f"partition {record.partition} does not exist")
            if record.position <= positions[record.partition]:
                raise self._wrong(number, f"position {record.position} is out of order")
            if record.recorded < stamp:
                raise self._wrong(number, "recorded before the preceding line")
            positions[record.partition] = record.position
            stamp = record.recorded
            self.count += 1
            named = msgspec.structs.replace(record, digest=digest_of(data))
            self._chains[record.partition].add((named,))
            if (request := request_of(line)) is not None:
                self._requests[record.partition, record.position] = request
            yield record
        message = f"{self._name} is truncated: its last line is missing"
        raise InvalidInput(message, self._name)

    def requests_of(self, records: Sequence[Record]) -> dict[int, bytes]:
        """Return the stored requests for decisions in these records, by index, and forget them."""
        requests = {
            n: self._requests.pop((record.partition, record.position), None)
            for n, record in enumerate(records)
            if isinstance(record.event, Decision)
        }
        return {n: request for n, request in requests.items() if request is not None}

    def _header(self) -> Header:
        number, text = next(self._source, (1, b""))
        try:
            header = read_header(text)
            if header.format > FORMAT:
                message = f"{self._name} has format {header.format}: upgrade belated"
                raise UnsupportedFormat(message)
            check_partitions(header.partitions)
        except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError) as error:
            message = f"{self._name} is not an exported journal: {error}"
            raise InvalidInput(message, number) from None
        return header

    def _check_end(self, number: int, line: End) -> None:
        if line.records != self.count:
            message = f"{self._name} has {self.count} records, but {line.records} were exported"
            raise InvalidInput(message, number)
        if line.head and line.head != str(head := Head.of(self._chains)):
            message = (
                f"{self._name} was modified after the export: its records have the head {head} "
                f"instead of {line.head}"
            )
            raise InvalidInput(message, number)
        for after, text in self._source:
            if text.strip():
                raise self._wrong(after, "unexpected line after the end")

    def _wrong(self, number: int, why: str) -> InvalidInput:
        return InvalidInput(f"{self._name}, line {number}: {why}", number)


def _dim_of(header: Header) -> int | None:
    """Return the width of the rows; None if the header does not contain it."""
    identity = header.identity or {}
    dim, blocks = identity.get("dim", ""), identity.get("blocks", "")
    if not dim.isdecimal():
        return None
    return 1 + int(dim) // int(blocks) if blocks.isdecimal() else int(dim)


@contextmanager
def _source(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        raise InvalidInput(f"{name}: no such file", name) from None
    with file:
        yield file


# --- logs of other systems -----------------------------------------------------------------------


def import_frame(options: argparse.Namespace, format: str, address: str) -> None:
    """Create a journal from a file with one row per decision."""
    if options.rewards is None:
        message = (
            "the meaning of a missing reward is unknown: add --rewards \"ConversionsOnly('7d')\""
        )
        raise InvalidInput(f"{message} if the log has only successes, or --rewards 'Explicit()'")
    columns = {name: getattr(options, name) for name in (*COLUMNS, "id", "context", "as_of")}
    log = Log.from_frame(
        _frame(options.source, format),
        rewards=as_semantics(options.rewards),
        features=None if options.features is None else as_features(options.features),
        **{name: value for name, value in columns.items() if value is not None},
    )
    log.to_journal(address)
    rewards = several(int(log.table().arrived.sum()), "reward")
    decisions, bandit = several(len(log.table()), "decision"), split_address(address)[1]
    print(f"{decisions} and {rewards} imported as bandit {bandit}")


def _frame(name: str, format: str) -> Any:
    """Read a file as an Arrow table."""
    with extra("an import of Parquet or CSV", "archive"):
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    with _source(name) as source:
        try:
            if format == "parquet":
                return pyarrow.parquet.read_table(source)
            return pyarrow.csv.read_csv(source)
        except (pyarrow.ArrowException, OSError) as error:
            raise InvalidInput(f"{name} cannot be read as {format}: {error}", name) from None


def import_foreign(source: BinaryIO, name: str, format: str, address: str) -> None:
    """Create a journal from another system's log."""
    place, bandit = split_address(address)
    read, features_of = READERS[format]
    log = list(read(source, name))
    with open_store(place).new_journal(bandit, partitions=1) as journal:
        count = import_log(journal, log, features_of(log) if log else None)
    print(f"{several(count, 'decision')} imported as bandit {bandit}")


# --- changing the number of partitions -----------------------------------------------------------

#: The reporter, start and end of a retraction.
Span = tuple[str, int, int]


def repartitioned(records: Iterable[Record], before: int, after: int) -> Iterator[Record]:
    """Convert the records for a different number of partitions and yield them.

    A decision and all its records stay together in one partition. Partition-specific events are
    rewritten. These are ``Settled(p, until)``, which advances the journal time of partition p to
    ``until``, and ``Retracted(p, …)``, which retracts the rewards that a key reported in p.

    * *The same number of partitions, or more.* Each new partition gets its decisions from a single
      old partition, and copies of that partition's Settled and Retracted events with their
      timestamps. Each decision is settled, and each reward retracted, by the same event as before.
    * *Fewer partitions.* A new partition gets decisions from several old ones, which may have been
      settled to different times. Whenever the minimum of these times advances, the new partition
      gets a Settled event, so that no decision is settled earlier than before. (Old partitions that
      have had no decisions so far are disregarded.) At the end, the new partition gets one Settled
      event with the maximum of these times, so that no settled decision becomes pending again.
      Rewards are delivered (``delivered``) up to the minimum. A retraction, which was recorded in
      every old partition, is written once.

    The decisions therefore have the same states in the new journal, and each new partition is
    settled as far as the most advanced of its old partitions. If a bandit has settled everything
    that was due, as ``bandit.sync()`` does, the digest is the same. The digest differs if a
    decision is overdue, that is, if its window has ended by the time of another partition, but its
    own partition does not have the Settled event yet. The next step of a bandit would settle the
    decision, and so does the import.

    With a retention, merged partitions forget decisions at the same time. This affects only
    decisions for which something other than a reward is recorded after the retention period.

    Two cases are rejected. If this release cannot read an event, it cannot determine the event's
    decision, so the partition can be merged but not split. Partitions in which the rewards of the
    same key are retracted differently cannot be merged.

    Args:
        records: the records, ordered by ``recorded``.
        before: the old number of partitions.
        after: the new number of partitions.

    Raises:
        InvalidInput: a record cannot be converted; the message names it.

    >>> settled = [Record(0, 1, 9, Settled(0, 8))]
    >>> [(r.event.partition, r.event.until) for r in repartitioned(settled, 1, 2)]
    [(0, 8), (1, 8)]
    """
    return _split(records, before, after) if after >= before else _merged(records, before, after)


def _split(records: Iterable[Record], before: int, after: int) -> Iterator[Record]:
    for record in records:
        event = record.event
        if isinstance(event, Settled | Retracted):
            for partition in range(record.partition, after, before):
                copy = replace(event, partition=partition)
                yield Record(partition, record.position, record.recorded, copy)
            continue
        if isinstance(event, Opaque) and after > before:
            raise InvalidInput(
                f"the record at partition {record.partition}, position {record.position} cannot "
                f"be read by this release, so its partition among {after} is unknown: upgrade "
                f"belated, or import into at most {before} partitions",
                record,
            )
        yield record


def _merged(records: Iterable[Record], before: int, after: int) -> Iterator[Record]:
    groups = [
        (_MergedTime(new, range(new, before, after)), _MergedActs(new, range(new, before, after)))
        for new in range(after)
    ]
    last = 0
    for record in records:
        last = record.recorded
        time, acts = groups[record.partition % after]
        event: Settled | Retracted | None
        if isinstance(record.event, Settled):
            event = time.settle(record.partition, record.event, last)
        elif isinstance(record.event, Retracted):
            event = acts.retract(record.partition, record.event)
        else:
            if isinstance(record.event, Decision | Opaque):
                time.begun.add(record.partition)
            elif isinstance(record.event, Reward | SubjectReward):
                acts.reporters[record.partition].add(record.event.reporter)
            yield record
            continue
        if event is not None:
            yield Record(event.partition, record.position, last, event)
    for time, acts in groups:
        acts.check()
        if (event := time.end()) is not None:
            yield Record(event.partition, 0, last, event)


class _MergedTime:
    """Computes the time to which a new partition is settled from the times of the old ones."""

    def __init__(self, new: int, old: range) -> None:
        self._reached = {partition: Settled(partition, 0) for partition in old}
        self._written = Settled(new, 0)
        #: Old partitions that have had at least one decision.
        self.begun: set[int] = set()

    def settle(self, old: int, event: Settled, recorded: int) -> Settled | None:
        """Return the event that advances the new partition's time; None if it does not advance."""
        # An event cannot advance journal time beyond its own timestamp.
        until = min(event.until, recorded)
        self._reached[old] = _further(self._reached[old], until, event.delivered)
        return self._write(
            min(self._reached[p].until for p in self.begun or {old}),
            min(self._reached[p].delivered for p in self.begun or {old}),
        )

    def end(self) -> Settled | None:
        """Return the event that advances the new partition to the maximum; None if unnecessary."""
        return self._write(max(settled.until for settled in self._reached.values()), 0)

    def _write(self, until: int, delivered: int) -> Settled | None:
        before = self._written
        self._written = _further(before, until, delivered)
        return None if self._written == before else self._written


def _further(settled: Settled, until: int, delivered: int) -> Settled:
    until, delivered = max(settled.until, until), max(settled.delivered, delivered)
    return replace(settled, until=until, delivered=delivered)


class _MergedActs:
    """Computes the retractions for a new partition from those in the old ones."""

    def __init__(self, new: int, old: range) -> None:
        self._new = new
        self._retracted: dict[int, set[Span]] = {partition: set() for partition in old}
        self._written: set[Span] = set()
        # Number of times that each retraction occurs, by old partition.
        self._met: dict[int, Counter[Retracted]] = {partition: Counter() for partition in old}
        self._most: Counter[Retracted] = Counter()
        #: Reporters of rewards, by old partition.
        self.reporters: dict[int, set[str]] = {partition: set() for partition in old}

    def retract(self, old: int, event: Retracted) -> Retracted | None:
        """Return the retraction for the new partition; None if it has already been written."""
        act = replace(event, partition=self._new)
        _apply(act, self._retracted[old])
        self._met[old][act] += 1
        if self._met[old][act] <= self._most[act]:
            return None
        self._most[act] += 1
        _apply(act, self._written)
        return act

    def check(self) -> None:
        """Raise InvalidInput if rewards of a key were retracted in only some old partitions."""
        for old, spans in self._retracted.items():
            for span in sorted(spans ^ self._written):
                reporter, start, end = span
                if reporter in self.reporters[old]:
                    verb = "retracts" if span in spans else "does not retract"
                    raise InvalidInput(
                        f"partition {old} {verb} what {reporter!r} reported from "
                        f"{as_datetime(start).isoformat()} to {as_datetime(end).isoformat()}, "
                        "unlike another partition that it is merged with: retract or restore it "
                        "with `belated journal retract`, which applies to every partition, and "
                        "export again; or import into the same number of partitions",
                        span,
                    )


def _apply(act: Retracted, spans: set[Span]) -> None:
    span = act.reporter, act.start, act.end
    if act.restored:
        spans.discard(span)
    else:
        spans.add(span)
