"""Cases with ids that try to be taken for one another: a case is a number, and always the same.

Each case is a few events under a few ids, in any order. They are folded three ways: live; with a
snapshot after every event, from which the next one goes on; and replayed from the bytes of a
journal. All three must agree with each other and with the oracle, which tells ids apart by their
text and knows nothing of keys.

Many cases, in as many processes as there are cores: ``python -m tests.laws.hostile_ids 1000000``
"""

from __future__ import annotations

import multiprocessing
import random
import sys
import time
import unicodedata
import uuid
from collections.abc import Callable
from datetime import timedelta

import numpy as np

from belated.core.events import (
    Activation,
    Decision,
    Event,
    Record,
    Reward,
    Settled,
    Void,
    decode,
    encode,
)
from belated.core.ids import MAX_ID_BYTES, check_id, key_of, new_id
from belated.core.rewards import DefaultAfter, Explicit, Rewards
from belated.core.tuning import Tuning
from belated.exceptions import InvalidInput
from belated.fold.ledger import Ledger, NullListener
from belated.fold.packing import pack, unpack
from belated.fold.rules import DecisionStatus
from belated.journals import MemoryJournal
from tests.simulator.oracle import Oracle, Outcome

ROW = np.ones(2, dtype=np.float32)
#: Cases that one process does before it reports.
SHARE = 500


def _uuid(rng: random.Random) -> str:
    """A UUID of any version, of any time, also of the first milliseconds of 1970."""
    number = rng.getrandbits(128)
    if rng.random() < 0.3:
        number &= (1 << 82) - 1
    version, variant = rng.randint(1, 8), 0b10
    number = number & ~(0xF << 76) & ~(0b11 << 62) | version << 76 | variant << 62
    return f"{number:032x}"


def _text(rng: random.Random) -> str:
    """An id that a caller might choose."""
    letters = rng.choice(["ab01", "äÖß", "Å字𝔘", "ıİſK", " \t\n\u00a0", "\u200b\u0301a"])
    return "".join(rng.choices(letters, k=rng.choice([1, 2, 8, 16, 32, 36])))


def _longest(rng: random.Random) -> str:
    """As long as can be, and different only at its end."""
    letter = rng.choice(["a", "é", "字", "𝔘"])
    size = len(letter.encode())
    body = letter * ((MAX_ID_BYTES - 1) // size)
    return body + rng.choice("xyz") * (MAX_ID_BYTES - len(body.encode()))


FRESH: tuple[Callable[[random.Random], str], ...] = (
    _uuid,
    _uuid,
    _text,
    _longest,
    lambda rng: f"{rng.getrandbits(128):032x}",
    lambda rng: new_id(rng.choice([0, 1_000, 10**6, 10**15]), slot=rng.randrange(4)),
)


def _with_version(id: str, version: str) -> str:
    return f"{id[:12]}{version}{id[13:]}"


#: From an id to one that somebody could take for it.
ALIASES: tuple[Callable[[str, random.Random], str], ...] = (
    lambda id, _: key_of(id).hex(),
    lambda id, _: key_of(id).hex().upper(),
    lambda id, rng: _with_version(key_of(id).hex(), rng.choice("12345678")),
    lambda id, _: str(uuid.UUID(bytes=key_of(id))),
    lambda id, _: f"urn:uuid:{uuid.UUID(bytes=key_of(id))}",
    lambda id, _: key_of(id).decode("latin-1").replace("\0", "0"),
    lambda id, _: id.upper(),
    lambda id, _: id.lower(),
    lambda id, _: id.casefold(),
    lambda id, _: id.replace("-", ""),
    lambda id, _: " ".join(id[n : n + 2] for n in range(0, len(id), 2)),  # as bytes.fromhex takes
    lambda id, _: id + " ",
    lambda id, _: "\ufeff" + id,
    lambda id, _: unicodedata.normalize("NFC", id),
    lambda id, _: unicodedata.normalize("NFD", id),
    lambda id, _: unicodedata.normalize("NFKC", id),
    lambda id, _: id.translate({ord("a"): "\u0430", ord("e"): "\u0435", ord("0"): "\u0660"}),
    lambda id, _: id.translate({n: n + 0xFEE0 for n in range(0x21, 0x7F)}),  # full width
    lambda id, _: id[:-1],
)


def ids_of(rng: random.Random) -> list[str]:
    """A few ids: one, its aliases, aliases of these, and perhaps an unrelated one."""
    ids = [rng.choice(FRESH)(rng)]
    while len(ids) < 3:
        alias_of = rng.choice(ALIASES)
        id = rng.choice(FRESH)(rng) if rng.random() < 0.15 else alias_of(rng.choice(ids), rng)
        try:
            ids.append(check_id(id))
        except InvalidInput:  # too long, or nothing is left of it
            continue
    return ids


def event_of(id: str, now: int, rng: random.Random) -> Event:
    """Anything that can be said of an id."""
    kind, moment = rng.random(), rng.randint(0, 2)
    if kind < 0.4:
        index = rng.randint(0, 1)
        return Decision(id, moment, index, index, ROW, 0.5, 0.5, 1, activated=rng.random() < 0.8)
    if kind < 0.75:
        value, part = rng.choice([0.0, 1.0, 0.5, -0.0, 9.0]), rng.choice(["", "", "a", id[:20]])
        return Reward(id, moment, value, part, rng.choice([0, 0, 1]))
    if kind < 0.83:
        return Activation(id, moment)
    return Void(id, moment) if kind < 0.9 else Settled(0, now - rng.choice([0, 1, 4]))


def check_case(number: int) -> int:
    """Check one case.

    Returns:
        How many events it had.
    """
    rng = random.Random(number)
    window = timedelta(microseconds=3)
    kinds: list[Rewards] = [Explicit(), Explicit(window), DefaultAfter(window)]
    rewards = rng.choice(kinds)
    retention = rng.choice([None, 3 + rng.randint(0, 4)])
    ids = list(dict.fromkeys(ids_of(rng)))
    assert len({key_of(id) for id in ids}) == len(ids), f"case {number}: two of {ids} share a key"
    now = [rng.choice([1, 100, 3_000])]  # near the time that ids of 1970 tell
    journal = MemoryJournal(clock=lambda: now[0])
    live, saved = _ledger(rewards, retention), _ledger(rewards, retention)
    for _ in range(rng.randint(3, 8)):
        now[0] += rng.choice([0, 0, 1, 2, 5])
        (position,) = journal.append([event_of(rng.choice(ids), now[0], rng)])
        (record,) = journal.read(0, position - 1, 1)
        statuses = live.fold(record), saved.fold(record)
        assert statuses[0] == statuses[1], f"case {number}: {record} is {statuses}"
        restored = _ledger(rewards, retention)
        unpack(restored, pack(saved))
        saved = restored
    records = journal.read(0, 0, 100)
    replayed = _ledger(rewards, retention)
    for stored in records:
        replayed.fold(Record(0, stored.position, stored.recorded, decode(encode(stored.event))))
    oracle = Oracle(records, rewards=rewards, retention=retention, min_reward=-1.0, max_reward=1.0)
    entries = oracle.entries
    expected = {id: _shown(entries.get(id)) for id in ids}
    for name, ledger in (("live", live), ("from snapshots", saved), ("replayed", replayed)):
        assert {id: _shown(ledger.entry(id)) for id in ids} == expected, f"case {number}: {name}"
        assert ledger.counts == list(oracle.counts.values()), f"case {number}: {name}"
        assert +ledger.counters == +live.counters, f"case {number}: {name}"
        assert ledger.digest == live.digest, f"case {number}: {name}"
    return len(records)


def _ledger(rewards: Rewards, retention: int | None) -> Ledger:
    return Ledger(
        rewards,
        NullListener(),
        min_reward=-1.0,
        max_reward=1.0,
        retention=retention,
        tuning=Tuning(dropped=1),
    )


def _shown(one: DecisionStatus | Outcome | None) -> tuple[object, ...] | None:
    if one is None:
        return None
    times = (
        (one.recorded_us, one.due_us)
        if isinstance(one, DecisionStatus)
        else (one.recorded, one.due)
    )
    return one.state, one.value, one.late, one.conflict, *times


def check_share(share: tuple[int, int]) -> int:
    """Check some cases, by the first and their number; returns how many events they had."""
    start, count = share
    return sum(check_case(number) for number in range(start, start + count))


def check_all(cases: int, first: int = 0) -> str:
    """Check many cases, in as many processes as there are cores; returns a line about them."""
    start, events, completed = time.monotonic(), 0, 0
    shares = [(n, min(SHARE, first + cases - n)) for n in range(first, first + cases, SHARE)]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for count in pool.imap_unordered(check_share, shares):
            completed, events = completed + 1, events + count
            seconds = (time.monotonic() - start) * (len(shares) - completed) / completed
            progress = f"\r{completed / len(shares):.1%} of {cases:,} cases, {seconds:.0f} s left "
            print(progress, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return f"{cases:,} cases, {events:,} events: live = snapshot + tail = replay = oracle"


if __name__ == "__main__":
    print(check_all(*map(int, sys.argv[1:])))
