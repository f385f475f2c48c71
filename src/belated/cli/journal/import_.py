"""``belated journal import``: make a journal of exported records, or of another system's log.

Records keep their stamps and their order, in any number of partitions: :func:`repartitioned` says
what becomes of the records that each partition has for itself. :mod:`belated.evaluation.logs` and
:mod:`belated.evaluation.frames` say what is read of other logs.
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

#: Records written at a time.
PAGE = 10_000
#: Formats of files with a line for each decision; and those that the ending of a file says.
FRAMES = ("parquet", "csv")
_BY_ENDING = {".parquet": "parquet", ".csv": "csv", ".dsjson": "dsjson", ".npz": "obp"}
#: Columns of such a file.
COLUMNS = {
    "action": "the chosen action",
    "propensity": "probability with which it was chosen, or a list of those of all actions",
    "reward": "the reward, null if none has come",
    "decided_at": "when the decision was made",
    "rewarded_at": "when the reward came, null if none has",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument(
        "source", metavar="FILE", help="from `export`, or a log; - for standard input"
    )
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        nargs="?",
        help="sqlite:///new.db (a new file) or postgresql://user@host/name, with ?bandit=NAME for "
        "another name than it had",
    )
    add_option(
        parser, "--into", "the same, behind options that take several values", metavar="ADDRESS"
    )
    parser.add_argument(
        "--format",
        choices=("records", *FRAMES, *READERS),
        help="records: from `export`, exactly; logs of other systems: parquet and csv (a line for "
        "each decision), dsjson (Vowpal Wabbit), obp (bandit_feedback of Open Bandit Pipeline as "
        ".npz); default: by the ending of FILE, else records",
    )
    add_option(parser, "--partitions", "a power of two; as it was if not given", int, metavar="P")
    group = parser.add_argument_group("of parquet and csv", "columns; times have a time zone")
    about = "what a missing reward means: Explicit() or \"ConversionsOnly('7d')\""
    add_option(group, "--rewards", about)
    add_option(group, "--context", "what was known before choosing", nargs="+", metavar="COLUMN")
    for name, about in COLUMNS.items():
        flag = f"--{name.replace('_', '-')}"
        add_option(group, flag, f"{about}; default: {name}", metavar="COLUMN")
    add_option(group, "--id", "decision ids; default: numbers of lines", metavar="COLUMN")
    about = "from contexts to rows; default: PerArm, fitted to the contexts"
    add_option(group, "--features", about)
    add_option(group, "--as-of", "leave out what happened later", time)


def run(options: argparse.Namespace) -> None:
    """Run the command."""
    address = options.into or options.address
    if address is None:
        message = "it is not said where to import to: add an address"
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
                "trimmed: a journal of the others would learn something else. To move a trimmed "
                "journal, copy its store"
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
    print(f"{several(lines.count, 'record')} imported as bandit {bandit} of {parts}")


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
                data = encode(record.event)  # what cannot be written is found here, with its line
                check_values(record.event, self._dim, self._features)
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
        raise InvalidInput(f"{name}: there is no such file", name) from None
    with file:
        yield file


# --- logs of other systems -----------------------------------------------------------------------


def import_frame(options: argparse.Namespace, format: str, address: str) -> None:
    """Make a journal of a file with a line for each decision."""
    if options.rewards is None:
        message = "what a missing reward means is not said: add --rewards \"ConversionsOnly('7d')\""
        raise InvalidInput(f"{message} if only good outcomes are in it, or --rewards 'Explicit()'")
    columns = {name: getattr(options, name) for name in (*COLUMNS, "id", "context", "as_of")}
    log = Log.from_frame(
        _frame(options.source, format),
        rewards=as_semantics(options.rewards),
        features=None if options.features is None else as_features(options.features),
        **{name: value for name, value in columns.items() if value is not None},
    )
    log.to_journal(address)
    came = int(log.table().arrived.sum())
    decided, bandit = several(len(log.table()), "decision"), split_address(address)[1]
    print(f"{decided} and {several(came, 'reward')} imported as bandit {bandit}")


def _frame(name: str, format: str) -> Any:
    """A table of Arrow."""
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
    """Make a journal of a log."""
    place, bandit = split_address(address)
    read, features_of = READERS[format]
    log = list(read(source, name))
    with open_store(place).new_journal(bandit, partitions=1) as journal:
        count = import_log(journal, log, features_of(log) if log else None)
    print(f"{several(count, 'decision')} imported as bandit {bandit}")


# --- another number of partitions ----------------------------------------------------------------

#: Reporter, start and end of what was retracted.
Span = tuple[str, int, int]


def repartitioned(records: Iterable[Record], before: int, after: int) -> Iterator[Record]:
    """The same records for another number of partitions.

    A decision and everything recorded about it are in one partition before and after. Events that
    belong to a partition are written again: ``Settled(p, until)``, which says that journal time in
    p has reached ``until``, and ``Retracted(p, …)``, which takes back what a key reported in p.

    * *As many partitions as before, or more.* Every new partition gets its decisions from one old
      partition, with the Settled and Retracted events of that one and their stamps. Each decision
      is settled, and each reward retracted, by the same event as before.
    * *Fewer.* A new partition gets decisions from several old ones, which may have been settled to
      different times. It gets a Settled whenever the least time grows that all of them have
      reached: no decision is settled earlier than it was. (An old partition without a decision so
      far does not hold up the others.) At the end it gets one Settled for the greatest time that
      any of them has reached: no settled decision is pending again. Rewards are delivered
      (``delivered``) up to where they were in all of them. A retraction was written into every old
      partition, and is written once.

    So the decisions have the same states in the new journal, settled in each partition as far as in
    the furthest. If a bandit has settled everything that was due (``bandit.sync()`` does that), the
    digest is the same. It differs if a decision is overdue: its window has ended by the clock of
    another partition, but its own has no Settled for it yet. The next step of a bandit would settle
    the decision, and the import does.

    With a retention, merged partitions forget together. This shows only in decisions about which
    something other than a reward is recorded after the retention.

    Two things are refused. An event that this release cannot read does not say which decision it
    belongs to: it can stay in its partition or be merged, but not be divided among more. And
    partitions that retracted different rewards of one key cannot be merged.

    Args:
        records: in the order of ``recorded``.
        before: how many partitions they are from.
        after: how many they go to.

    Raises:
        InvalidInput: the new partitions cannot hold what a record says; names it.

    >>> settled = [Record(0, 1, 9, Settled(0, 8))]
    >>> [(one.event.partition, one.event.until) for one in repartitioned(settled, 1, 2)]
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
                f"be read by this release, which so cannot tell its partition among {after}: "
                f"upgrade belated, or import into {before} or fewer",
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
    """The time to which a new partition is settled, by those it is merged from."""

    def __init__(self, new: int, old: range) -> None:
        self._reached = {partition: Settled(partition, 0) for partition in old}
        self._written = Settled(new, 0)
        #: Those that had a decision.
        self.begun: set[int] = set()

    def settle(self, old: int, event: Settled, recorded: int) -> Settled | None:
        """Return what is settled in the new partition, if that is more than before."""
        # No journal time is beyond the journal's own last stamp, whatever somebody wrote.
        until = min(event.until, recorded)
        self._reached[old] = _further(self._reached[old], until, event.delivered)
        return self._write(
            min(self._reached[p].until for p in self.begun or {old}),
            min(self._reached[p].delivered for p in self.begun or {old}),
        )

    def end(self) -> Settled | None:
        """Return what settles it as far as the furthest was, if anything is left."""
        return self._write(max(one.until for one in self._reached.values()), 0)

    def _write(self, until: int, delivered: int) -> Settled | None:
        before = self._written
        self._written = _further(before, until, delivered)
        return None if self._written == before else self._written


def _further(one: Settled, until: int, delivered: int) -> Settled:
    return replace(one, until=max(one.until, until), delivered=max(one.delivered, delivered))


class _MergedActs:
    """What is retracted in a new partition, by those it is merged from."""

    def __init__(self, new: int, old: range) -> None:
        self._new = new
        self._retracted: dict[int, set[Span]] = {partition: set() for partition in old}
        self._written: set[Span] = set()
        # How often each act was met; the same one may stand in a partition again.
        self._met: dict[int, Counter[Retracted]] = {partition: Counter() for partition in old}
        self._most: Counter[Retracted] = Counter()
        #: Who reported rewards in each.
        self.reporters: dict[int, set[str]] = {partition: set() for partition in old}

    def retract(self, old: int, event: Retracted) -> Retracted | None:
        """Return what is retracted in the new partition, unless another has brought it."""
        act = replace(event, partition=self._new)
        _apply(act, self._retracted[old])
        self._met[old][act] += 1
        if self._met[old][act] <= self._most[act]:
            return None
        self._most[act] += 1
        _apply(act, self._written)
        return act

    def check(self) -> None:
        """Refuse to take back, or to let count again, what was not in its old partition."""
        for old, spans in self._retracted.items():
            for span in sorted(spans ^ self._written):
                reporter, start, end = span
                if reporter in self.reporters[old]:
                    verb = "retracts" if span in spans else "does not retract"
                    raise InvalidInput(
                        f"partition {old} {verb} what {reporter!r} reported from "
                        f"{as_datetime(start).isoformat()} to {as_datetime(end).isoformat()}, "
                        "unlike another that it is merged with: retract or restore it in the old "
                        "journal by `belated journal retract`, which does so in every partition, "
                        "and export again; or import into as many partitions as there were",
                        span,
                    )


def _apply(act: Retracted, spans: set[Span]) -> None:
    span = act.reporter, act.start, act.end
    if act.restored:
        spans.discard(span)
    else:
        spans.add(span)
