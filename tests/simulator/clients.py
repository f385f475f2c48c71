"""Actors outside the bandits' processes: clients, writers that bypass deciders, and operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial

from belated.core.events import (
    Activation,
    Decision,
    Erased,
    Event,
    Record,
    Retracted,
    Reward,
    Settled,
    SubjectDecision,
    SubjectReward,
    Void,
)
from belated.core.ids import slot_of_subject
from belated.core.rewards import retention_us
from belated.exceptions import BelatedError, CorruptEvent
from belated.fold.trimming import last_to_drop, make_bases, trim
from belated.journals.arrivals import erased_key_in
from belated.journals.log import EMPTY, Tail
from belated.journals.snapshots import Snapshot
from belated.model.families import Bernoulli, Gaussian
from tests.simulator.checks import check_oracle, empty_fold, expected_of, replayed
from tests.simulator.releases import decision_of
from tests.simulator.settings import DAY, HOUR, SECOND
from tests.simulator.store import Transaction
from tests.simulator.world import (
    REFUSED,
    Answer,
    DecisionEvent,
    DecisionRequest,
    Receiver,
    Reply,
    Request,
    World,
    rows_of,
)


class Client:
    """Requests decisions while the world is active, reports outcomes, and retries until answered.

    Args:
        world: it lives in.
        name: of the client.
        servers: to ask, any of them.
    """

    def __init__(self, world: World, name: str, servers: Sequence[Receiver]) -> None:
        self._world = world
        self._name = name
        self._servers = servers
        self._rng = world.stream(name)
        family = world.settings.policy.family
        third = 0.25 if isinstance(family, Bernoulli) else -1.5
        self._values = (0.0, 1.0, third if isinstance(family, Bernoulli | Gaussian) else 4.0)
        for number in range(world.settings.decisions):
            time = self._rng.uniform(0, world.settings.span)
            world.schedule.after(time, partial(self._request, number))

    def _send(self, what: Request, then: Callable[[Answer], None] | None = None) -> None:
        """Send until there is an answer; a few requests are never retried."""
        world, is_answered = self._world, False
        world.sent.append(what)

        def receive(answer: Answer) -> None:
            nonlocal is_answered
            world.trace_event(self._name, f"heard {_brief(answer)}: {what}")
            if answer != REFUSED:
                world.acknowledged.append((what, answer))
            if answer == "unmatched":
                world.faults.see("told before the decision")
            if not is_answered and then is not None:
                then(answer)
            is_answered = True

        def reply(answer: Answer) -> None:
            world.network.send(partial(receive, answer))

        def attempt(wait: float) -> None:
            if not is_answered:
                # Some are in a hurry and send two requests at once.
                for _ in range(self._rng.choice([1, 1, 1, 2])):
                    server = self._rng.choice(self._servers)
                    world.network.send(partial(server.receive, what, reply))
                if wait < math.inf:
                    world.schedule.after(wait, partial(attempt, min(2 * wait, DAY)))

        attempt(math.inf if self._rng.random() < 0.1 else 10 * SECOND)

    def _request(self, number: int) -> None:
        rng = self._rng
        name = rng.choice([f"{self._name}-{number}", f"shared-{number}", None, None])
        count = 1 if name or rng.random() < 0.7 else 3
        self._send(DecisionRequest(name, count, activated=rng.random() < 0.8), self._decided)
        if name and rng.random() < 0.3:  # the outcome is known before the decision is made
            self._report(name)

    def _decided(self, answer: Answer) -> None:
        assert not isinstance(answer, str)
        for decision in answer:
            if not decision.activated and self._rng.random() < 0.8:
                self._send_later(Activation(decision.id, self._now()))
            if self._rng.random() < 0.8:
                self._report(decision.id)

    def _report(self, id: str) -> None:
        """Report the outcome of a decision: a single reward in half of all cases."""
        rng, at = self._rng, self._now()
        value, other_value = rng.choice(self._values), rng.choice(self._values)
        reward = Reward(id, at, value)
        reports: list[list[DecisionEvent]] = [
            [reward],
            [Reward(id, at, other_value, "click"), reward],  # in parts
            [reward, Reward(id, at, other_value, revision=1)],  # corrected
            [reward, Reward(id, at, other_value, revision=2), Reward(id, at, value, revision=1)],
            [reward, Reward(id, at + 1, value)],  # repeated
            [reward, Reward(id, at, other_value)],  # contradicted
            [reward, Void(id, at)],
            [Reward(id, at, rng.choice([math.nan, -7e300]))],
        ]
        for event in rng.choice(reports) if rng.random() < 0.5 else reports[0]:
            self._send_later(event)

    def _send_later(self, event: DecisionEvent) -> None:
        delay = self._rng.choice([0.01, 0.3, 2.0]) * self._rng.expovariate(1.0)
        extra_delay = HOUR * self._rng.choice([0, 0, 0, 30])
        wait = delay * self._world.settings.span + extra_delay
        self._world.schedule.after(wait, partial(self._send, event))

    def _now(self) -> int:
        return self._world.schedule.now + self._rng.randint(-5, 5) * SECOND


class SubjectClient(Client):
    """Decides for two subjects, and reports their outcomes: some late, repeated or contradicted.

    Some decisions arrive late, too: another process had them in its spool.
    """

    def _request(self, number: int) -> None:
        rng, world = self._rng, self._world
        subject = f"subject-{number % 2}"
        if rng.random() < 0.3:
            world.schedule.after(
                rng.expovariate(5 / world.settings.span),
                partial(self._deliver, subject, self._now()),
            )
        else:
            name = f"subject-decision-{number}" if world.settings.partitions == 1 else None
            name = name if rng.random() < 0.3 else None
            activated = rng.random() < 0.7
            sticky = timedelta(microseconds=world.settings.span // 10)
            sticky_time = None if name is not None or rng.random() < 0.5 else sticky
            request = DecisionRequest(name, 1, activated, subject, sticky_time)
            self._send(request, partial(self._decided_for, subject))
        if rng.random() < 0.5:
            self._reward(subject, self._now())

    def _decided_for(self, subject: str, answer: Answer) -> None:
        """Reward the subject around the end of the window, and in between."""
        rng = self._rng
        if rng.random() < 0.5:
            self._decided(answer)
        assert not isinstance(answer, str)
        window = self._world.settings.rewards.window_us or HOUR
        for decision in answer:
            for _ in range(rng.choice([1, 2])):
                delay = rng.choice([rng.randrange(window), rng.randrange(window), window, 0, -1])
                self._reward(subject, decision.at_us + delay + rng.choice([0, 0, 0, 1]))

    def _reward(self, subject: str, at: int) -> None:
        """Report an outcome, and sometimes another value for it."""
        rng = self._rng
        event_id = f"event-{rng.randrange(12)}"
        for value in rng.sample(self._values, rng.choice([1, 1, 2])):
            self._send_later(SubjectReward(subject, at, value, event_id))

    def _deliver(self, subject: str, at: int) -> None:
        """Append a decision that was made earlier."""
        world, store = self._world, self._world.store
        id = world.settings.tuning.new_id(at, slot_of_subject(subject))
        if world.features is None:
            x = rows_of(subject, world.settings.policy.dim)[0]
            decision = Decision(id, at, 0, 0, x, 0.5, 0.5, 0)
        else:
            decision = decision_of(world.features, id, at, subject, 0)
        if store.reachable and not store.is_busy:
            world.sent.append(decision)
            store.append([decision, SubjectDecision(subject, at, id)])
            world.trace_event(self._name, f"delivered {decision}")
            self._decided_for(subject, [decision])


def _brief(answer: Answer) -> object:
    if isinstance(answer, str):
        return answer
    return [(decision.id, decision.index) for decision in answer]


class Writer:
    """Appends events without a bandit; its transactions stay open, and others overtake them.

    Args:
        world: it lives in.
        name: of the process.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._rng = world.stream(name)
        self._clock = world.clock(name)

    def receive(self, what: Request, reply: Reply) -> None:
        """Append an event, sometimes twice; or a decision, even if its id has one."""
        world, rng = self._world, self._rng
        if not world.store.reachable:
            return
        if not isinstance(what, DecisionRequest):
            self._write([what] * rng.choice([1, 1, 1, 2]), reply)
        elif what.name is not None and rng.random() < 0.3:
            name, now, activated = what.name, self._clock(), what.activated
            if world.features is None:
                x = what.rows(self._name, world.settings.policy.dim)[1]
                rival = Decision(name, now, 1, 1, x, 0.5, 0.5, 0, activated)
            else:
                key = what.key or name
                rival = decision_of(world.features, name, now, key, 1, activated=activated)
            world.sent.append(rival)
            self._write([rival])

    def _write(self, events: list[Event], reply: Reply | None = None) -> None:
        world = self._world
        (transaction,) = world.store.begin(events)
        if world.faults.strike("event of a newer release"):  # unreadable until an upgrade
            for position in transaction.positions:
                place = transaction.partition, position
                world.store.veiled[place] = "newer"
                upgrade = partial(world.store.veiled.pop, place, None)
                world.schedule.after(self._rng.expovariate(5 / world.settings.span), upgrade)
        is_idle = world.faults.strike("transaction idle")
        wait = self._rng.expovariate(3 / world.settings.span if is_idle else 1 / SECOND)
        world.schedule.after(wait, partial(self._finish, transaction, reply))

    def _finish(self, transaction: Transaction, reply: Reply | None) -> None:
        store = self._world.store
        if self._world.faults.strike("transaction aborted"):
            store.give_up(transaction)
        if store.sync(transaction) and reply is not None:
            reply("written")
        line = f"{transaction.partition} {transaction.positions} {transaction.state}"
        self._world.trace_event(self._name, line)


class BoundaryWriter:
    """Appends events at the microsecond at which a window or retention ends, or next to it.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        settings = world.settings
        self._world = world
        self._rng = world.stream("boundaries")
        retention = retention_us(settings.retention, settings.rewards)
        spans = settings.rewards.window_us, retention
        self._spans = [span for span in spans if span is not None]
        self._seen: set[tuple[int, int]] = set()
        if self._spans:
            world.schedule.after(0, self._look)

    def _look(self) -> None:
        world, rng = self._world, self._rng
        if not world.active:
            return
        for partition, records in enumerate(world.records):
            for record in records:
                place = partition, record.position
                if isinstance(record.event, Decision) and place not in self._seen:
                    self._seen.add(place)
                    if rng.random() < 0.9:
                        self._aim(record.event.id, partition, record.recorded)
        world.schedule.after(rng.expovariate(20 / world.settings.span), self._look)

    def _aim(self, id: str, partition: int, recorded: int) -> None:
        """Schedule an event of a decision for the end of its window or retention."""
        world, rng = self._world, self._rng
        moment = recorded + rng.choice(self._spans) + rng.choice([-1, 0, 0, 1])
        wait = moment - world.store.now()
        value = rng.choice([0.0, 1.0])
        choices: list[Reward | Void] = [Reward(id, moment, value)] * 2 + [Void(id, moment)]
        event = rng.choice(choices)
        world.sent.append(event)
        events: list[Event] = [event]
        if rng.random() < 0.5:  # settled at that moment, in either order
            events = [Settled(partition, moment), event]
            rng.shuffle(events)
        if wait >= 0:
            world.schedule.after(wait, partial(self._write, events))

    def _write(self, events: list[Event]) -> None:
        world, store = self._world, self._world.store
        if store.reachable and not store.is_busy:
            store.append(events)
            world.trace_event("the boundary writer", events)
            if isinstance(events[0], Settled):  # the rules hold at this very moment too
                replay = replayed(world, world.ends)
                check_oracle(replay, expected_of(replay, world.records))


class UndoingOperator:
    """Erases decisions and retracts rewards in some runs, and restores some of what it retracted.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("undoing")
        self._retracted: list[Retracted] = []
        if self._rng.random() < 0.5:
            world.schedule.after(self._pause(), self._undo)

    def _pause(self) -> float:
        return self._rng.expovariate(3 / self._world.settings.span)

    def _undo(self) -> None:
        world, rng, store = self._world, self._rng, self._world.store
        if not world.active:
            return
        partition = rng.randrange(world.settings.partitions)
        if rng.random() < 0.5:
            self._overwrite()
        start = store.start(partition).position  # records of a base may still be readable
        records = [record for record in store.readable(partition) if record.position > start]
        event = self._choose(partition, records)
        if event is not None and store.reachable and not store.is_busy:
            store.append([event])
            if isinstance(event, Retracted):
                self._retracted.append(event)
            world.faults.see("record undone")
            world.trace_event("the operator", event)
        world.schedule.after(self._pause(), self._undo)

    def _overwrite(self) -> None:
        """Overwrite the bytes of what was erased, even if no learner has read the erasure yet."""
        world, store = self._world, self._world.store
        partitions = range(world.settings.partitions)
        events = (record.event for partition in partitions for record in store.undone(partition))
        keys = [event.key for event in events if isinstance(event, Erased)]
        if store.reachable:
            with suppress(CorruptEvent):  # of a record that is damaged for now
                if store.overwrite(keys):
                    world.faults.see("record overwritten")

    def _choose(self, partition: int, records: list[Record]) -> Event | None:
        rng, store = self._rng, self._world.store
        now = store.now()
        if self._retracted and rng.random() < 0.3:
            retraction = rng.choice(self._retracted)
            if retraction.start <= store.start(retraction.partition).stamp:
                return None  # trimmed records cannot be restored
            return Retracted(
                retraction.partition,
                now,
                retraction.start,
                retraction.end,
                retraction.reporter,
                restored=True,
            )
        rewards = Reward, SubjectReward
        kinds = (Decision, *rewards) if rng.random() < 0.5 else rewards
        candidates = [record for record in records if isinstance(record.event, kinds)]
        if not candidates:
            return None
        record = rng.choice(candidates)
        start = store.start(partition)
        is_whole = isinstance(record.event, SubjectReward) and rng.random() < 0.5
        if isinstance(record.event, Decision) or is_whole:  # a decision, or all of a subject
            key = erased_key_in(record.event)
            assert key is not None
            trimmed = (
                past_record
                for past_record in store.records(partition)
                if past_record.position <= start.position
            )
            if any(erased_key_in(past_record.event) == key for past_record in trimmed):
                return None  # trimmed records cannot be erased
            return Erased(key, now)
        if record.recorded <= start.stamp:
            return None  # others with that stamp were trimmed
        # Rewards without a reporter: nearly all of them, in these runs.
        end = record.recorded + rng.choice([1, 2, self._world.settings.span])
        return Retracted(partition, now, record.recorded, end, "")


class TrimmingOperator:
    """Drops old records, slice by slice, in some runs; "old" may be a moment ago.

    Args:
        world: it lives in.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.stream("trimming")
        self._retention = retention_us(world.settings.retention, world.settings.rewards)
        if self._rng.random() < 0.5:
            world.schedule.after(self._pause(), self._begin)

    def _pause(self) -> float:
        return self._rng.expovariate(10 / self._world.settings.span)

    def _soon(self) -> float:
        return self._rng.expovariate(100 / self._world.settings.span)

    def _begin(self) -> None:
        """Make the bases; what happens before they are stored may make them useless."""
        world, store = self._world, self._world.store
        if not world.active:
            return
        undone_counts = [len(store.undone(partition)) for partition in world.partitions]
        try:
            tails = [self._last(partition) for partition in world.partitions]
            bases = make_bases(store, empty_fold(world, tuning=world.settings.tuning), tails)
        except BelatedError:  # an unreadable record
            bases = []
        for base in bases:
            partition = base.partition
            rebase = partial(self._rebase, base, tails[partition], undone_counts[partition])
            world.schedule.after(self._soon(), rebase)
        world.schedule.after(self._pause(), self._begin)

    def _last(self, partition: int) -> Tail:
        store, settings = self._world.store, self._world.settings
        snapshot_position = store.saved(partition)
        if snapshot_position is None or self._rng.random() < 0.3:
            return EMPTY
        cutoff = store.now() - self._rng.choice([0, settings.span // 10, self._retention or 0])
        return last_to_drop(store, partition, cutoff, snapshot_position, settings.tuning.link)

    def _rebase(self, base: Snapshot, last: Tail, known: int) -> None:
        store = self._world.store
        if not store.reachable or store.is_busy:
            return
        try:
            trim(store, base, last, known, reason="", actor="")
        except BelatedError:  # something was undone meanwhile, or the snapshot was discarded
            return
        self._drop(base.partition)

    def _drop(self, partition: int) -> None:
        world = self._world
        if world.store.drop(partition, self._rng.choice([1, 5, 1000])):
            world.faults.see("record trimmed")
            world.schedule.after(self._soon(), partial(self._drop, partition))
