"""What the doctor asks of the bandits, wherever they are stored."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from belated.core.times import as_datetime
from belated.exceptions import BelatedError
from belated.fold.published import PublishedModel
from belated.journals import Store, StoredBandit
from belated.service.operating.findings import Finding, ok, warning, wrong
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandit import MAX_MODEL_AGE

#: Seconds by which clocks may differ.
CLOCKS = 1.0


def examine_bandits(store: Store, bandits: Sequence[Definition]) -> Iterator[Finding]:
    """Whether each has a journal, a leader and a fresh model."""
    try:
        stored = {one.name: one for one in store.describe()}
    except BelatedError as error:
        yield wrong("store", str(error), "correct store.address")
        return
    for one in bandits:
        found = stored.get(one.name)
        if found is None:
            mend = "start the service: it makes it"
            yield warning(f"journal of {one.name}", "there is none yet", mend)
        else:
            yield _journal(one, found)
            yield _stamps(store, one.name)
            yield from _learner(store, one.name)


def _journal(made: Definition, found: StoredBandit) -> Finding:
    check = f"journal of {made.name}"
    if made.partitions not in (None, found.partitions):
        what = f"partitions: {found.partitions}; the file says {made.partitions}"
        mend = f"write partitions = {found.partitions}, or move it with `belated journal import`"
        return wrong(check, what, mend)
    return ok(check, f"partitions: {found.partitions}")


def _stamps(store: Store, name: str) -> Finding:
    """Whether journal time goes on: stamps never decrease, so that one of the future stops it."""
    check = f"stamps of {name}"
    try:
        with store.journal(name) as journal:
            last = max(map(journal.last_stamp, range(journal.partitions)))
            ahead = (last - journal.now()) / 1e6
    except BelatedError as error:
        return wrong(check, str(error), "see that the store can be used")
    if ahead > CLOCKS:
        what = f"the last is {ahead:.0f} s ahead of the clock that stamps, which has jumped"
        until = f"{as_datetime(last):%Y-%m-%d %H:%M:%S} UTC"
        return wrong(check, f"{what}: no window ends before {until}", "have the clock set by NTP")
    return ok(check, "none is ahead of the clock")


def _learner(store: Store, name: str) -> Iterator[Finding]:
    try:
        coordination = store.coordination(name)
        try:
            leader, published = coordination.leader(), coordination.published()
        finally:
            coordination.close()
    except BelatedError as error:
        yield wrong(f"leader of {name}", str(error), "see that the store can be used")
        return
    if leader is None:
        mend = "start `belated learn`, or a service with learn = true; its log says why not"
        yield warning(f"leader of {name}", "nobody learns", mend)
    else:
        lease = f"its lease ends in {leader.seconds:.0f} s unless it is renewed"
        yield ok(f"leader of {name}", f"{leader.holder}; {lease}")
    yield _model(f"model of {name}", None if published is None else published[1])


def _model(check: str, data: bytes | None) -> Finding:
    if data is None:
        return warning(check, "there is none yet", "see that a learner runs")
    try:
        age = time.time() - PublishedModel.read(data).at / 1e6
    except BelatedError as error:
        return wrong(check, str(error), "start a learner of this release: it makes another")
    if age > MAX_MODEL_AGE:
        mend = "see that a learner runs, and whether the mode is freeze"
        return warning(check, f"it is {age / 60:.0f} minutes old", mend)
    return ok(check, f"it is {max(0.0, age):.1f} s old")
