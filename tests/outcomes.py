"""An independent consumer of outcomes, and the comparison of its state with the ledger."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from belated import DefaultAfter
from belated.core.events import (
    Decision,
    Erased,
    Event,
    Retracted,
    Reward,
    SubjectDecision,
    SubjectReward,
    Void,
)
from belated.core.ids import erased_key_of, new_id, slot_of_subject
from belated.core.inputs import Interval
from belated.core.rewards import Rewards
from belated.evaluation.files import STATES
from belated.evaluation.sources import EVERY, JournalTable, read_journal
from belated.evaluation.table import SOURCES
from belated.fold.contexts import NAME
from belated.journals import Journal

#: States without an outcome.
OPEN = ("dormant", "pending")


class Consumer:
    """Keeps the greatest version of each outcome, as a program without the library would."""

    def __init__(self) -> None:
        self.newest: dict[str, dict[str, Any]] = {}
        self.received = self.repeated = 0

    def take(self, messages: Iterable[bytes | str]) -> None:
        """Receive messages in any order, some of them again."""
        for data in messages:
            message = json.loads(data)
            newest = self.newest.get(message["id"], {"version": 0})
            self.received += 1
            if message["version"] == newest["version"]:
                self.repeated += 1
                assert message == newest, "two contents of one version"
            if message["version"] > newest["version"]:
                self.newest[message["id"]] = message

    def known(self) -> dict[str, dict[str, Any]]:
        """Return the outcomes that are known, by id."""
        return {
            id: message
            for id, message in self.newest.items()
            if message["state"] not in (*OPEN, "erased")
        }


def _time(text: str | None) -> int | None:
    """Return microseconds since 1970."""
    if text is None:
        return None
    elapsed = datetime.fromisoformat(text) - datetime(1970, 1, 1, tzinfo=UTC)
    return round(elapsed.total_seconds() * 1e6)


def check_equal(
    consumer: Consumer,
    journal: Journal,
    rewards: Rewards,
    retention: int | None = None,
    support: Interval = EVERY,
) -> JournalTable:
    """Assert that a consumer knows what a fold of the whole journal knows; return the fold."""
    table = read_journal(journal, rewards=rewards, retention=retention, support=support)
    states = np.array(STATES, dtype=object)[table.state]
    ids = Counter(table.ids.tolist())
    # An id that was used again after its retention has two decisions.
    lines = {id: n for n, id in enumerate(table.ids) if states[n] not in OPEN and ids[id] == 1}
    messages = {id: message for id, message in consumer.known().items() if ids[id] <= 1}
    assert messages.keys() == lines.keys(), {*messages} ^ {*lines}
    for id, n in lines.items():
        message = messages[id]
        value = None if np.isnan(table.value[n]) else float(table.value[n])
        assert message["state"] == states[n], id
        assert message.get("value") == value, id
        assert message["action"] == table.actions[table.action[n]], id
        assert message["source"] == SOURCES[table.source[n]], id
        assert message.get("group", "") == table.groups[table.group[n]], id
        for name in ("index", "propensity", "mean", "model"):
            assert message[name] == getattr(table, name)[n], (id, name)
        overall = None if np.isnan(table.overall[n]) else float(table.overall[n])
        assert message.get("overall") == overall, id
        assert message.get("late", False) == table.late[n], id
        assert message.get("conflict", False) == table.conflict[n], id
        for name in ("recorded", "effective", "rewarded"):
            column = table.made if name == "effective" else getattr(table, name)
            expected = None if column[n] == np.iinfo(np.int64).min else int(column[n])
            assert _time(message.get(name)) == expected, (id, name)
    return table


#: What a missing reward means in the generated journals; windows end while a test runs.
WINDOW = "2s"
REWARDS = DefaultAfter(WINDOW, value=0.0)


class Traffic:
    """Appends decisions, rewards, corrections and erasures to a journal, at random.

    Args:
        journal: the journal.
        seed: of all that is random.
    """

    def __init__(self, journal: Journal, seed: int) -> None:
        self.journal, self.rng = journal, random.Random(seed)
        self.ids: list[str] = []
        self.decisions = self.erased = 0
        self._spans: list[Retracted] = []

    def append(self, count: int) -> None:
        """Make decisions, and report some rewards for these and earlier ones."""
        rng, now, events = self.rng, self.journal.now(), list[Event]()
        slot = rng.randrange(4096)
        for _ in range(count):
            subject = f"user-{rng.randrange(500)}" if rng.random() < 0.1 else None
            id = new_id(now, slot if subject is None else slot_of_subject(subject))
            stored = msgspec.msgpack.encode([{"age": rng.randrange(90), "city": "Köln\0"}, None])
            x = np.array([1.0, rng.random()], dtype=np.float32)
            action = rng.choice(["red", "blue"])
            events.append(
                Decision(id, now, action, 0, x, 0.5, 0.5, 0, context=bytes(NAME) + stored)
            )
            if subject is not None:
                events.append(SubjectDecision(subject, now, id))
                if rng.random() < 0.5:
                    name = f"order-{rng.randrange(10**6)}"
                    events.append(SubjectReward(subject, now, rng.random(), name, "feed"))
            self.ids.append(id)
        for _ in range(count):
            id, kind = rng.choice(self.ids[-20 * count :]), rng.random()
            if kind < 0.6:
                reporter, revision = rng.choice(["", "feed"]), rng.choice([0, 0, 1, 2])
                events.append(Reward(id, now, rng.random(), "", revision, reporter))
            elif kind < 0.63:
                events.append(Void(id, now))
        self.journal.append(events)
        self.decisions += count

    def undo(self) -> None:
        """Erase some decisions, and retract rewards of a feed or restore them."""
        rng, journal, now = self.rng, self.journal, self.journal.now()
        ids = [*dict.fromkeys(rng.choices(self.ids, k=3))]
        journal.append([Erased(erased_key_of(id), now, "asked", "me") for id in ids])
        self.erased += len(ids)
        if self._spans and rng.random() < 0.5:
            span = self._spans.pop()
            events = [msgspec.structs.replace(span, restored=True, at_us=now)]
        else:
            partition, start = rng.randrange(journal.partitions), now - rng.randrange(3_000_000)
            events = [Retracted(partition, now, start, start + 500_000, "feed")]
            self._spans += events
        journal.append(events)
