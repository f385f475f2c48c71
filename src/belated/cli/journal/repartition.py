"""The records of a journal, for another number of partitions.

A decision and all that is told of it stand in one partition before and after. What each partition
has for itself must be written anew: ``Settled(p, until)``, which says that journal time in p has
reached ``until``, and ``Retracted(p, …)``, which takes back what a key reported in p.

* *As many partitions as before, or more.* Every new partition has its decisions from one old
  partition, and gets the Settled and Retracted events of that one with their stamps. Each decision
  is settled, and each reward retracted, by the same event as before.
* *Fewer.* A new partition has decisions from several old ones, which may have been settled to
  different times. While records go by, it gets a Settled whenever the least time grows that all of
  those have reached: no decision is settled before it was. (An old partition that had no decision
  so far does not hold the others up.) At the end it gets one Settled for the greatest time any of
  them has reached: no decision that was settled is pending again. Rewards are delivered
  (``delivered``) up to where they were in all of them. A retraction was written into every old
  partition, and is written once.

So the decisions of the new journal have the states of those in the old one, settled in each
partition as far as in the furthest. Where a bandit has settled all that was due (``bandit.sync()``
does it) that is how they are, and the digest is the same. It is otherwise where a decision is
overdue: its window is over by the clock of another partition, but nobody has written it down in its
own. One step of a bandit would settle it, and the import does.

With a retention, partitions that are merged forget together. This shows only in decisions of which
something other than a reward is told after the retention.

What cannot be said in the new partitions is refused: an event this release cannot read, which does
not tell whose it is, can stay in its partition or be merged, but not be brought into more; and
partitions that retracted different rewards of one key cannot be merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from belated.events import Decision, Opaque, Record, Retracted, Reward, Settled
from belated.exceptions import InvalidInput
from belated.times import as_datetime

#: Reporter, start and end of what was retracted.
Span = tuple[str, int, int]


def repartitioned(records: Iterable[Record], before: int, after: int) -> Iterator[Record]:
    """The same records for another number of partitions.

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
            elif isinstance(record.event, Reward):
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
