"""The fault simulator with the parts of the service: what the library's own runs have no part of.

* Deciders choose with whatever model they have last seen on the board, and count their own
  decisions until a model knows them; some have a spool.
* Learners lead by a lease, one after the other or both at once; epochs fence what they write.
* An operator switches the bandit to and fro.

Clients, writers, network, store, disks, clocks, faults and laws are the simulator's own.
``Decider``, ``LearningService`` and ``Lease`` are the real ones: they go step by step, without
threads, so a run is its seed.

As a script it runs one seed, line by line: ``python -m tests.faults.service_simulation 17``.
"""

from __future__ import annotations

import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from zlib import crc32

import numpy as np

from belated import bandit
from belated.decider import MODES, Asked, Decider, NoChoice
from belated.events import Decision, Event, Reward, Switched, encode
from belated.exceptions import (
    CorruptEvent,
    JournalAway,
    JournalUnavailable,
    OwnerSuperseded,
    SnapshotWarning,
    UnknownEvent,
)
from belated.ids import key_of, partition_of
from belated.journals import Journal, Leader
from belated.journals.spool.journal import SpoolJournal
from belated.learner import Fold
from belated.published import PublishedModel
from belated.service.learning.learning_service import LearningService
from belated.testing.simulator.checks import (
    Disagreement,
    check_acknowledged,
    check_counts,
    check_lineage,
    check_oracle,
    check_same,
    check_stamps,
    empty_fold,
    replayed,
)
from belated.testing.simulator.clients import Client
from belated.testing.simulator.disk import Disk
from belated.testing.simulator.faults import Killed
from belated.testing.simulator.messages import (
    REFUSED,
    Answer,
    Offer,
    Reply,
    Request,
    Server,
    rows_of,
)
from belated.testing.simulator.schedule import DAY, Clock
from belated.testing.simulator.session import SimulatedJournal
from belated.testing.simulator.town import Town
from belated.testing.simulator.world import PLAIN, World
from belated.testing.simulator.writers import Writer

#: What a process lives through, and tries again.
TROUBLE = (JournalUnavailable, OwnerSuperseded, CorruptEvent, UnknownEvent)


class ServiceJournal(SimulatedJournal):
    """A session that tells what the service asks for."""

    def now(self) -> int:
        """The clock that stamps records."""
        return self._reach()._clock()

    def mode(self) -> Switched | None:
        """The last event that switched the mode."""
        return last_switch(self._reach())

    def decision(self, id: str) -> Decision | None:
        """The one that counts under an id, by the first rule of the ledger."""
        partition = partition_of(key_of(id), self.partitions)
        found = [record.event for record in self._reach().records(partition)]
        made = [event for event in found if isinstance(event, Decision) and event.id == id]
        return min(made, key=lambda one: (one.at, crc32(encode(one))), default=None)


def last_switch(store: Any) -> Switched | None:
    """Where readers see it."""
    found = [
        (record.recorded, partition, record.position, record.event)
        for partition in range(store.partitions)
        for record in store.records(partition)
        if isinstance(record.event, Switched)
    ]
    return max(found, key=lambda one: one[:3])[3] if found else None


class Board:
    """Who leads, and the last model, as the database has them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._holder, self._until = "", 0
        self.epoch = self.number = 0
        self.model = b""

    def acquire_lease(self, holder: str, seconds: float) -> int | None:
        """Become the leader, or stay it."""
        self._reach()
        now = self._world.schedule.now
        if holder != self._holder:
            if now < self._until:
                return None
            self.epoch += 1
            self._world.tell(holder, f"leads in epoch {self.epoch}")
        self._holder, self._until = holder, now + int(seconds * 1e6)
        return self.epoch

    def release_lease(self, holder: str) -> None:
        """Leave at once."""
        self._reach()
        if holder == self._holder:
            self._until = 0

    def leader(self) -> Leader | None:
        """Who leads now."""
        self._reach()
        left = self._until - self._world.schedule.now
        return Leader(self._holder, self.epoch, left / 1e6) if left > 0 else None

    def publish(self, data: bytes, epoch: int) -> int:
        """Pin up a model; refused from whoever was superseded."""
        self._reach()
        self.check_epoch(epoch)
        if epoch != self.epoch:
            raise Disagreement("L: one that leads no longer has pinned up a model")
        switched = last_switch(self._world.store)
        if switched is not None and switched.mode == "freeze":
            raise Disagreement("L: a model was pinned up while the bandit is frozen")
        self.number, self.model = self.number + 1, data
        return self.number

    def check_epoch(self, epoch: int) -> None:
        """What the statement of the database checks."""
        if epoch != self.epoch:
            self._world.faults.see("owner superseded")
            raise OwnerSuperseded(None)

    def published(self, after: int = 0) -> tuple[int, bytes] | None:
        """The model and its number, if it is another."""
        self._reach()
        return (self.number, self.model) if self.number != after else None

    def close(self) -> None:
        """Nothing is held."""

    def _reach(self) -> None:
        if not self._world.store.reachable:
            raise JournalUnavailable("the board cannot be seen")


class Actor:
    """A process: it works now and then, dies, and starts again."""

    def __init__(self, world: World, board: Board, name: str) -> None:
        self.world, self.board, self.name = world, board, name
        self.clock: Clock = world.clock(name)
        self.rng = world.stream(name)
        self.runs = False
        self.start()
        world.schedule.after(self.pause(), self._tick)

    def start(self) -> None:
        """If it does not run; or later, where it cannot."""
        if self.runs:
            return
        try:
            self._open()
            self.runs = True
        except (Killed, *TROUBLE) as error:
            self.world.tell(self.name, f"did not start: {error}")
            self.world.schedule.after(self.pause(), self.start)

    def attempt(self, what: Callable[[], Answer | None]) -> Answer | None:
        """Do something; None where it came to nothing."""
        if not self.runs:
            return None
        try:
            return what()
        except Killed:
            self.world.tell(self.name, "killed")
            self.runs = False
            self._died()
            self.world.schedule.after(self.pause(), self.start)
        except TROUBLE as error:
            self.world.tell(self.name, error)
        return None

    def pause(self) -> float:
        """Between two things that it does."""
        return self.rng.expovariate(20 / self.world.knobs.span)

    def _tick(self) -> None:
        if self.world.active:
            self.attempt(self.work)
            self.world.schedule.after(self.pause(), self._tick)

    def _open(self) -> None: ...

    def _died(self) -> None: ...

    def work(self) -> None:
        """What is done now and then."""


class LearnerActor(Actor):
    """A learner of the service. Its lease is renewed by nobody else, so it ends now and then."""

    def _open(self) -> None:
        knobs = self.world.knobs
        self.service = LearningService(
            ServiceJournal(self.world.store, self.world.faults),
            self.board,
            self.empty,
            holder=f"{self.name}/{self.rng.random()}",
            lease=knobs.span / 1e6 / self.rng.choice([5, 20, 50]),
        )
        self.service.lease._clock = lambda: self.world.schedule.now / 1e6

    def empty(self) -> Fold:
        """Nothing is known yet."""
        fold = empty_fold(self.world)
        fold.learner._limit = self.world.knobs.batch
        return fold

    def work(self) -> None:
        """A step; or the end of the process, in good order."""
        if self.world.faults.strike("stopped in good order"):
            self.service.close()
            self.runs = False
            self.world.schedule.after(self.pause(), self.start)
            return
        lease = self.service.lease
        ends = lease._ends
        if self.world.faults.strike("partition taken over"):
            lease._ends = math.inf  # it slept after it had looked, and another may lead by now
        try:
            self.service.step()
        finally:
            if lease._ends == math.inf:
                lease._ends = ends
        fold = self.service.fold
        if fold is not None:
            check_counts(self.name, fold)
            self.world.tell(self.name, f"at {fold.positions}: {fold.digest}")


class DeciderActor(Actor):
    """A decider of the service: choose, have it kept, then answer."""

    def __init__(self, world: World, board: Board, name: str) -> None:
        self._disk = Disk(world.faults, world.stream(f"{name}'s disk"))
        self._watching = False
        super().__init__(world, board, name)

    def _open(self) -> None:
        world, knobs = self.world, self.world.knobs
        self.decider = Decider(
            knobs.policy, partitions=knobs.partitions, clock=self.clock,
            seed=self.rng.getrandbits(32), using=PLAIN,
        )  # fmt: skip
        self._reader = ServiceJournal(world.store, world.faults)
        journal: Journal = ServiceJournal(world.store, world.faults)
        self._kept: dict[str, int] = {}  # positions of what was decided here
        if knobs.spooled:
            journal = SpoolJournal(
                journal, self._disk, wait=None, clock=self.clock, delivered=self._delivered
            )
        self.journal = journal
        self._number = 0
        self.look()

    def _died(self) -> None:
        if self.rng.random() < 0.5:
            self._disk.lose_power()

    def work(self) -> None:
        """Look at the board; hand over what waits."""
        self.look()

    def look(self) -> None:
        """Take the mode, and the model if there is a newer one."""
        switched = self._reader.mode()
        if switched is not None:
            self.decider.switch(switched.mode)  # type: ignore[arg-type]
        found = self.board.published(self._number)
        if found is not None and found[0]:
            self._number = found[0]
            self.decider.take(PublishedModel.read(found[1]))
            self._check_counted()

    def receive(self, what: Request, reply: Reply) -> None:
        """Answer, or not."""
        if self.runs and self.decider.mode == "off":
            self.attempt(self.look)  # as its thread does all the time
        answer = self.attempt(lambda: self._answer(what))
        if answer is not None:
            reply(answer)
        self._watch()

    def _answer(self, what: Request) -> Answer | None:
        if not isinstance(what, Offer):
            rewards, support = self.world.knobs.rewards, self.world.knobs.policy.family.support
            least, most = rewards.range(support)
            if isinstance(what, Reward) and not least <= what.value <= most:
                return REFUSED
            self._keep([what])
            return "accepted"
        if self.decider.mode == "off":
            return None
        if what.name is not None and (known := self._known(what.name)) is not None:
            return [known]
        rows = rows_of(what.name or self.name, self.world.knobs.policy.dim)
        offer = Asked(rows.astype(np.float32).tobytes(), id=what.name, activated=what.activated)
        offers = [offer] * what.count
        try:
            made = self.decider.choose_all(offers)
        except NoChoice as why:
            made = self.decider.fall_back(offers, why)
        try:
            positions = self._keep(made)
        except BaseException:
            for one in made:
                self.decider.dropped(one.id)
            raise
        for one, position in zip(made, positions, strict=True):
            self._kept[one.id] = position
            self.decider.written(one.id, position)
        if what.name is not None:  # another may have been asked the same meanwhile
            return [self._known(what.name) or made[0]]
        return made

    def _keep(self, events: Sequence[Event]) -> list[int]:
        positions = self.journal.append(events)
        if 0 in positions:
            self.world.faults.see("event spooled")
        return positions

    def _known(self, id: str) -> Decision | None:
        spool = self.journal if isinstance(self.journal, SpoolJournal) else None
        if spool is None:
            return self._reader.decision(id)
        own = self.decider.kept(id, waiting=True)
        if own is not None:
            return own
        if not spool.status.away:
            return self._reader.decision(id)
        own = self.decider.kept(id)
        if own is None:
            raise JournalAway("whether it was used cannot be looked up")
        return own

    def _delivered(self, events: Sequence[Event], positions: Sequence[int]) -> None:
        for event, position in zip(events, positions, strict=True):
            if isinstance(event, Decision):
                self.decider.written(event.id, position)
                if event.id in self._kept:  # else an earlier process has left it
                    self._kept[event.id] = position

    def _check_counted(self) -> None:
        """What was decided here, and no model has known yet, is still counted."""
        published = self.decider._published
        assert published is not None
        for id, position in list(self._kept.items()):
            known = published.positions[partition_of(key_of(id), self.world.knobs.partitions)]
            if 0 < position <= known:
                del self._kept[id]
            elif self.decider.kept(id) is None:
                raise Disagreement(f"C: {self.name} forgot {id}, which no model knows")

    def _watch(self) -> None:
        """Do what the thread of a spool does: try again as long as anything waits."""
        spool = self.journal if self.runs else None
        if isinstance(spool, SpoolJournal) and not self._watching:
            status = spool.status
            if status.away or status.waiting:
                self._watching = True
                self.world.schedule.after(self.pause(), self._try_again)

    def _try_again(self) -> None:
        self._watching = False

        def forward() -> None:
            assert isinstance(self.journal, SpoolJournal)
            self.journal.forward()

        self.attempt(forward)
        self._watch()


class ServiceTown(Town):
    """Deciders, learners and an operator in place of processes with a bandit each."""

    def __init__(self, world: World) -> None:
        knobs = world.knobs
        self.world = world
        self.board = Board(world)
        self.learner_actors = [
            LearnerActor(world, self.board, f"learner {n}") for n in range(knobs.learners)
        ]
        self.decider_actors = [
            DeciderActor(world, self.board, f"decider {n}") for n in range(knobs.deciders)
        ]
        self.learners, self.deciders = [], []
        writers = [Writer(world, f"writer {n}") for n in range(2)]
        servers: list[Server] = [*self.decider_actors * 3, *writers]
        for n in range(knobs.clients):
            Client(world, f"client {n}", servers)
        self._rng = world.stream("town")
        self._operator = world.stream("operator")
        world.schedule.after(0, self._mischief)
        world.schedule.after(0, self._operate)

    def _operate(self) -> None:
        """Switch the bandit, now and then."""
        if self.world.active:
            mode = self._operator.choice(["learn", "learn", *MODES])
            self._switch(mode)
            wait = self._operator.expovariate(5 / self.world.knobs.span)
            self.world.schedule.after(wait, self._operate)

    def _switch(self, mode: str) -> None:
        try:
            now = self.world.schedule.now
            ServiceJournal(self.world.store, self.world.faults).append([Switched(now, mode, "")])
        except (Killed, *TROUBLE) as error:
            self.world.tell("the operator", error)
        else:
            self.world.tell("the operator", mode)

    def heal(self) -> None:
        """As in every town; and the bandit learns again."""
        self.world.faults.stop()
        self.world.store.reachable = True
        self._switch("learn")
        for actor in [*self.learner_actors, *self.decider_actors]:
            actor.start()
            actor.attempt(actor.work)
        super().heal()

    def agree(self) -> str:
        """All laws: at once, and when all windows are over; returns the digest."""
        world = self.world
        check_acknowledged(world)
        check_lineage(world)
        self._agree_on_models()
        world.schedule.now += (world.knobs.rewards.window_us or 0) + 3 * DAY
        fold = self._agree_on_models()
        check_stamps(world)
        self._see_statuses(fold)
        return fold.digest

    def _agree_on_models(self) -> Fold:
        """L: whoever leads, each decider has its model: that of a replay, and the oracle's."""
        world = self.world
        for learner in self.learner_actors:  # each leads once, from the snapshot of the one before
            service = learner.service
            for _ in range(20_000):  # of a second each
                world.schedule.now += 1_000_000
                if service.step() == 0 and service.fold is not None and service._fit is None:
                    break
            assert service.fold is not None, "L: nobody leads"
            ends = [world.store.end(p) for p in range(world.knobs.partitions)]
            fold, replay = service.fold, replayed(world, ends)
            check_counts(learner.name, fold)
            check_same("L", learner.name, fold, replay)
            check_oracle(fold, [world.store.records(p) for p in range(world.knobs.partitions)])
            for actor in self.decider_actors:
                actor.look()
                model, version = actor.decider.model, actor.version
                found = len(actor.decider.unapplied), version, model.n, model.pending
                wanted = 0, fold.version, fold.model.n, fold.model.pending
                if found != wanted:
                    raise Disagreement(f"L: {actor.name} has {found}, and should have {wanted}")
            fold.save(service.journal)
            self.board.release_lease(service.holder)
            service.lease._epoch = None
            service._stand_by()
        world.tell("all", f"agree on {replay.digest}")
        return replay


class Steps:
    """In place of a thread for fits: the result is there at the next but one look."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, fit: Callable[[], Any]) -> Future[Any]:
        """Compute it now, and be done later."""
        result, looks = fit(), iter([False, True])
        future: Future[Any] = Future()
        future.set_result(result)
        future.done = lambda: next(looks, True)  # type: ignore[method-assign]
        return future

    def shutdown(self) -> None:
        """There is nothing to end."""


class NoThread:
    """In place of a thread that renews a lease."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def start(self) -> None:
        """It does nothing."""

    join = start


@contextmanager
def without_threads(world: World) -> Iterator[None]:
    """The service in virtual time, and with ids that repeat."""
    time = SimpleNamespace(monotonic=lambda: world.schedule.now / 1e6)
    threads = SimpleNamespace(Thread=NoThread, Lock=threading.Lock, Event=threading.Event)
    with ExitStack() as stack:
        for place, value in {
            "belated.service.learning.learning_service.time": time,
            "belated.service.learning.learning_service.ThreadPoolExecutor": Steps,
            "belated.service.learning.learning_service.PAGE": world.knobs.page,
            "belated.service.learning.lease.threading": threads,
            "belated.decider.new_id": vars(bandit)["new_id"],
        }.items():
            stack.enter_context(patch(place, value))
        yield


def simulate_service(seed: int, listen: Callable[[str], object] | None = None) -> World:
    """Run one seed; returns all there is at the end.

    Raises:
        Disagreement: something that must hold does not.
    """
    world = World(seed, listen)
    with world.knobs.applied(), without_threads(world), warnings.catch_warnings():
        warnings.simplefilter("ignore", SnapshotWarning)
        town = ServiceTown(world)
        town.live()
        town.heal()
        town.agree()
    return world


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(simulate_service(int(argument), print).trace)
