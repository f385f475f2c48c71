"""The events in the golden journals, and the state that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from belated import Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.events import (
    ActionChanged,
    Activation,
    Configured,
    Decision,
    Erased,
    Event,
    KeyChanged,
    ModeChanged,
    Retracted,
    Reward,
    Settled,
    Void,
)
from belated.core.ids import erased_key_of
from belated.core.rewards import Rewards
from belated.fold.contexts import pack_context
from belated.fold.fold import Fold
from belated.fold.requests import KeptRequest, keep_request
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals import Journal
from belated.journals.chain import LINK
from belated.journals.identity import identify

POLICY = DelayedUCB(3, Bernoulli(), ridge=1.0)
#: The meaning of missing rewards, by the name of the bandit.
BANDITS: dict[str, Rewards] = {
    "explicit": Explicit(window=timedelta(days=7)),
    "default": DefaultAfter(window=timedelta(days=7), value=0.25),
    "trimmed": DefaultAfter(window=timedelta(days=7)),
}
PARTITIONS = 2
START = 1_700_000_000_000_000
HOUR = 3_600_000_000
#: The number of last events that are not in the snapshots.
TAIL = 20


#: The context of some decisions.
CONTEXT = pack_context(
    {"age": 7, "seen": [0.5, 0.25]}, {name: {"price": n} for n, name in enumerate("abcd")}
)


def context_bytes(n: int) -> bytes:
    """Return the stored context of a decision."""
    assert CONTEXT is not None
    return bytes(range(16)) + CONTEXT.of_decision(1) if n % 4 == 1 else b""


def history() -> Iterator[tuple[int, Event]]:
    """Yield events of every kind and in every order, each with the timestamp of its record."""
    rng = np.random.default_rng(1)
    yield START, Configured(START, {"rewards": "Explicit", "window": "7d", "größe": ""})
    for n in range(100):
        now, id = START + 3 * n * HOUR, f"order {n}"
        x = rng.normal(size=3).astype(np.float32)
        if n % 10 == 9:
            yield now, Reward(id, now, 1.0)  # before its decision
        action = f"offer {n % 4}" if n % 3 else n % 4
        active = n % 7 != 6
        yield (
            now,
            Decision(
                id,
                now,
                action,
                n % 4,
                x,
                0.5,
                0.25 + n % 3 / 4,
                7 * n,
                active,
                context=context_bytes(n),
            ),
        )
        if n % 21 == 6:
            yield now + HOUR, Activation(id, now + HOUR)
        if n % 2:
            reward = Reward(id, now + HOUR, float(rng.integers(2)))
            yield now + HOUR, reward
            if n % 11 == 1:
                yield now + HOUR, reward  # again
            if n % 5 == 1:
                yield now + HOUR, Reward(id, now + HOUR, 0.5, revision=1)
            if n % 13 == 1:
                yield now + HOUR, Reward(id, now + HOUR, 1.0, "second part")
        if n % 17 == 5:
            yield now + HOUR, Void(id, now + HOUR)
        if n % 20 == 19:
            yield (
                now + HOUR,
                ModeChanged(now + HOUR, "freeze" if n % 40 == 19 else "learn", "golden"),
            )
            change = "pause" if n % 40 == 19 else "resume"
            yield now + HOUR, ActionChanged(now + HOUR, "blue", change, 0, None, "golden")
            yield from ((now + HOUR, Settled(p, now + HOUR)) for p in range(PARTITIONS))
    late = START + 400 * HOUR
    yield late, Reward("order 0", late, 1.0)
    yield late, Reward("order 1000", late, 1.0)  # of an unknown decision


def new_fold(bandit: str) -> Fold:
    """Return an empty fold of a bandit."""
    return Fold(POLICY, BANDITS[bandit], partitions=PARTITIONS)


def state_of(fold: Fold) -> dict[str, Any]:
    """Return the state of a fold as JSON values."""
    return {
        "digest": fold.digest,
        "counts": fold.counts,
        "counters": fold.counters,
        "actions": {name: change.change for name, change in fold.actions.items()},
        "theta": fold.learner.estimate.theta.tolist(),
    }


def request(decision: Decision) -> bytes:
    """Return the stored request of a decision."""
    rows = np.tile(decision.x, (4, 1))
    context = CONTEXT if decision.index == 1 else None
    shares = None if decision.index == 2 else [0.1, 0.2, 0.3, 0.4]
    data = keep_request(decision.id, 1.0, 4, None, rows, context, shares, decision.index)
    assert data is not None
    return data


def requests_of(events: Sequence[Event]) -> dict[int, bytes]:
    """Return the requests of the decisions among some events, by index."""
    decisions = ((n, event) for n, event in enumerate(events) if isinstance(event, Decision))
    return {n: request(decision) for n, decision in decisions}


def requests_in(journal: Journal) -> list[dict[str, Any]]:
    """Return all stored requests, in order."""
    requests = []
    for partition in range(journal.partitions):
        events = {record.position: record.event for record in journal.read(partition, 0, 10_000)}
        stored = journal.requests(partition, list(events))
        for position in sorted(stored):
            decision = events[position]
            assert isinstance(decision, Decision)
            requests.append(KeptRequest.read(stored[position], decision).to_dict())
    return requests


def fill(journal: Journal, bandit: str) -> Fold:
    """Append the history, save a snapshot of most of it, and return the fold."""
    identify(journal, family=repr(POLICY.family), dim=POLICY.dim)
    stamps, events = map(list, zip(*history(), strict=True))
    fold = new_fold(bandit)
    first = events[:-TAIL]
    journal.append(first, recorded=stamps[:-TAIL], requests=requests_of(first))
    fold.catch_up(journal)
    fold.save(journal)
    journal.append(events[-TAIL:], recorded=stamps[-TAIL:])
    fold.catch_up(journal)
    return fold


def undo(journal: Journal) -> None:
    """Append operator actions: erase, retract, change a key; and overwrite the erased decision."""
    now = START + 500 * HOUR
    acts: list[Event] = [Erased(erased_key_of("order 1"), now, "asked for", "me")]
    acts += [Retracted(p, now, START, now, "crm", reason="bad", actor="me") for p in range(2)]
    acts.append(KeyChanged(now, "k3J9xQ2a", "shop", "created", ("decide", "reward"), "", "me"))
    journal.append(acts, recorded=[now] * len(acts))
    assert journal.overwrite([erased_key_of("order 1")]) > 0


def append_links(journal: Journal, start: int) -> int:
    """Append unmatched rewards that fill a link of each partition; return the last timestamp."""
    rewards = [Reward(f"nobody {n}", start + n, 1.0) for n in range(2_300)]
    journal.append(rewards, recorded=[reward.at_us for reward in rewards])
    return start + len(rewards)


def drop_links(journal: Journal, fold: Fold, empty: Fold, before: int) -> None:
    """Save a snapshot, then drop the first link of each partition with its records."""
    fold.save(journal)
    ends = [journal.end(partition) for partition in range(PARTITIONS)]
    last = [last_to_drop(journal, p, before, end, LINK) for p, end in enumerate(ends)]
    undone = [len(journal.undone(partition)) for partition in range(PARTITIONS)]
    for base in make_bases(journal, empty, last):
        trim(journal, base, last[base.partition], undone[base.partition], reason="", actor="me")
        while journal.drop(base.partition, 1_000):
            pass
    fold.catch_up(journal)


def fill_and_trim(journal: Journal, bandit: str) -> Fold:
    """Fill a journal; for the bandit `trimmed`, also undo some of it and drop its first links."""
    fold = fill(journal, bandit)
    if bandit == "trimmed":
        undo(journal)
        late = append_links(journal, START + 600 * HOUR)
        fold = new_fold(bandit)
        fold.load(journal)
        fold.catch_up(journal)
        drop_links(journal, fold, new_fold(bandit), late + HOUR)
    return fold
