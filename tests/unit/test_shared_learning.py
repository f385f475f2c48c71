"""Several learners of one bandit: who owns what, what is sent, and what is published."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit
from belated.core.events import ModeChanged, Record
from belated.core.ids import SLOTS, new_id
from belated.core.rewards import Rewards
from belated.core.tuning import Tuning
from belated.exceptions import CorruptEvent, JournalUnavailable
from belated.fold.fold import Fold
from belated.fold.partitioned import PartitionFold
from belated.fold.published import PublishedModel
from belated.journals import MemoryStore
from belated.service.learning.shared_learner import SharedLearner
from belated.service.runtime import Step
from belated.testing import ManualClock
from tests.brokers import BrokeredStore, Brokers, Membership

POLICY = DelayedUCB(3, Bernoulli())
PARTITIONS = 4
_names = itertools.count()


class Machine:
    """A runtime whose time is moved by hand, and whose threads run when they are asked to."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.steps: list[Step] = []

    def clock(self) -> int:
        """Microseconds since 1970."""
        return self._clock()

    def monotonic(self) -> float:
        """Seconds."""
        return self._clock() / 1e6

    def start_worker(self, name: str, step: Step) -> Machine:
        """It is called by :meth:`Town.run`."""
        self.steps.append(step)
        return self

    def start_background(self, name: str) -> Machine:
        """This very thread."""
        return self

    def submit(self, work: object) -> Future[object]:
        """Do it at once."""
        done: Future[object] = Future()
        try:
            done.set_result(work())  # type: ignore[operator]
        except Exception as error:
            done.set_exception(error)
        return done

    def stop(self, seconds: float | None = None) -> None:
        """Nothing runs."""


class Town:
    """A store, and learners on machines of their own."""

    def __init__(self, rewards: Rewards | None = None) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.brokers = Brokers(PARTITIONS, self.clock)
        self.rewards = rewards or Explicit()
        self.journal = self.store.journal("offers", partitions=PARTITIONS)
        self.machines: dict[SharedLearner, Machine] = {}
        numbers = itertools.count()
        # Random ids would go to other partitions each time, and a model is one step from its fit.
        tuning = Tuning(new_id=lambda now, _: new_id(now, 997 * next(numbers) % SLOTS))
        self.bandit = Bandit(
            policy=POLICY,
            rewards=self.rewards,
            journal=self.journal,
            clock=self.clock,
            seed=3,
            tuning=tuning,
        )

    def learner(self) -> SharedLearner:
        """One more."""
        machine = Machine(self.clock)
        holder = f"learner {next(_names)}"
        instance = SharedLearner(
            self.store.journal("offers"),
            BrokeredStore(self.store.coordination("offers"), self.brokers, holder, machine),  # type: ignore[arg-type]
            self.fold,
            holder=holder,
            runtime=machine,
        )
        self.machines[instance] = machine
        return instance

    def fold(self, partition: int) -> PartitionFold:
        """An empty one."""
        return PartitionFold(POLICY, self.rewards, partitions=PARTITIONS, partition=partition)

    def events(self, count: int = 20) -> None:
        """Decisions, most with a reward."""
        rng = np.random.default_rng(count)
        for _ in range(count):
            decision = self.bandit.decide(rows=rng.normal(size=(3, 3)))
            if rng.random() < 0.8:
                self.bandit.observe(decision.id, float(rng.random() < 0.5))

    def run(self, *learners: SharedLearner, seconds: float = 3.0) -> None:
        """Let each do its steps for a while, and renew what it holds."""
        for _ in range(round(seconds * 5)):
            self.clock.now += 200_000
            for learner in learners:
                for step in self.machines[learner].steps:
                    step()
                learner.step()

    def published(self) -> PublishedModel:
        """The last model."""
        entry = self.store.coordination("offers").published()
        assert entry is not None
        return PublishedModel.read(entry[1])

    def check(self) -> None:
        """The last model is that of all records."""
        model, replay = self.published(), Fold(POLICY, self.rewards, partitions=PARTITIONS)
        replay.catch_up(self.journal)
        assert model.positions == replay.positions
        assert (model.version, model.n) == (replay.version, replay.model.n)
        assert model.pending == replay.model.pending
        estimate, offset = replay.learner.estimate, model.model(POLICY).theta
        offset = offset - estimate.theta
        assert offset @ estimate.precision @ offset < 0.05**2


def owned(*learners: SharedLearner) -> list[list[int]]:
    """The partitions of each."""
    return [sorted(learner.worker.owned) for learner in learners]


def test_what_was_folded_late_is_no_lag_any_more() -> None:
    """A worker that has folded all there is, is not behind."""
    town = Town()
    town.events()
    town.clock.now += 3_600_000_000
    learner = town.learner()
    lags = []
    for _ in range(40):
        town.run(learner, seconds=0.2)
        lags.append(learner.worker.lag)
    assert max(lags) >= 3_600
    assert lags[-1] == 0.0


def test_one_learner_does_all() -> None:
    """It owns every partition, leads, and publishes what all of them come to."""
    town = Town()
    town.events()
    learner = town.learner()
    town.run(learner)
    assert owned(learner) == [[0, 1, 2, 3]]
    assert learner.leads()
    assert learner.epoch == 1
    town.check()
    configured = town.journal.configured()
    assert configured is not None
    assert "DelayedUCB" in configured.settings["policy"]


def test_partitions_are_shared_and_one_merges() -> None:
    """A newcomer gets its share, and begins where the last owner saved."""
    town = Town()
    first = town.learner()
    town.run(first)
    town.events(40)
    town.run(first)
    second = town.learner()
    town.run(first, second, seconds=10)
    assert owned(first, second) == [[0, 1], [2, 3]]
    assert [first.leads(), second.leads()] == [True, False]
    assert all(town.journal.load(p) is not None for p in (2, 3))  # saved before given back
    assert first.worker.lost == second.worker.lost == 0
    town.events(60)
    town.run(first, second)
    town.check()


def test_a_dead_learner_is_replaced() -> None:
    """Once its session and its lease have ended; nothing of what it did not save is lost."""
    town = Town()
    first, second = town.learner(), town.learner()
    town.run(first, second, seconds=10)
    assert owned(first, second) == [[0, 1], [2, 3]]
    town.events(50)
    town.run(first, second)
    town.run(second, seconds=12)  # the first is dead
    assert owned(second) == [[0, 1, 2, 3]]
    assert second.leads()
    town.check()


def test_stopping_learner_waits_once_for_unavailable_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not once for each partition."""
    town = Town()
    learner = town.learner()
    town.run(learner)
    assert owned(learner) == [[0, 1, 2, 3]]
    attempts = []

    def save(fold: PartitionFold, shelf: object) -> None:
        attempts.append(fold.partition)
        raise JournalUnavailable("it does not answer")

    monkeypatch.setattr(PartitionFold, "save", save)
    learner.close()
    assert len(attempts) == 1


def test_a_learner_that_slept_drops_what_it_had() -> None:
    """It saves nothing and sends nothing of it; then it gets its share again."""
    town = Town()
    first, second = town.learner(), town.learner()
    town.run(first, second, seconds=10)
    town.events(50)
    town.run(second, seconds=12)
    epochs = {p: partition.epoch for p, partition in first.worker.owned.items()}
    membership = first.worker.membership
    assert isinstance(membership, Membership)
    ends = membership._ends
    membership._ends = town.clock.now  # it believes that its session goes on
    before = [saved.position for p in range(PARTITIONS) if (saved := town.journal.load(p))]
    first.step()
    membership._ends = ends
    assert first.worker.lost == len(epochs) == 2
    after = [saved.position for p in range(PARTITIONS) if (saved := town.journal.load(p))]
    assert before == after
    town.run(first, second, seconds=10)
    assert sorted(itertools.chain(*owned(first, second))) == [0, 1, 2, 3]
    assert all(len(partitions) == 2 for partitions in owned(first, second))
    assert all(partition.epoch > epochs.get(p, 0) for p, partition in first.worker.owned.items())
    town.check()


def test_learners_stop_in_good_order() -> None:
    """The others take over at once, from the snapshots that were saved."""
    town = Town()
    first, second = town.learner(), town.learner()
    town.run(first, second, seconds=10)
    town.events(30)
    town.run(first, second)
    first.close()
    town.run(second, seconds=4)  # the session is renewed once
    assert owned(second) == [[0, 1, 2, 3]]
    assert second.leads()
    town.check()


def test_windows_end() -> None:
    """The owner of a partition settles what is due."""
    town = Town(DefaultAfter("1h"))
    first, second = town.learner(), town.learner()
    town.run(first, second, seconds=10)
    town.events(30)
    town.clock.now += int(2 * 3600e6)
    town.run(first, second, seconds=12)
    assert town.published().pending == 0
    town.check()


def test_a_frozen_bandit_keeps_its_model() -> None:
    """Sums are sent on, and the model stays until it learns again."""
    town = Town()
    learner = town.learner()
    town.events(10)
    town.run(learner)
    town.journal.append([ModeChanged(town.clock.now, "freeze", "")])
    before = town.published()
    town.events(10)
    town.run(learner, seconds=10)
    assert town.published() == before
    town.journal.append([ModeChanged(town.clock.now, "learn", "")])
    town.run(learner)
    town.check()


def test_no_model_goes_back() -> None:
    """While a new owner knows less of a partition than the last model, nothing is published."""
    town = Town()
    learner = town.learner()
    town.events(30)
    town.run(learner)
    before = town.published()
    merging = learner.merging
    assert merging is not None
    epoch = town.journal.acquire(0)
    stale_sums = town.fold(0).sums(epoch)
    coordination = town.store.coordination("offers")
    assert coordination.send({0: (epoch, stale_sums.write())}) == []
    learner._look_at = 0.0
    assert learner.merge() == 1
    assert merging.positions[0] == 0
    assert town.published() == before
    town.run(learner, seconds=10)  # it was fenced, and takes the partition over again
    assert learner.worker.lost == 1
    assert merging.entries[0].epoch > epoch
    town.check()


def test_superseded_merger_becomes_standby() -> None:
    """It cannot publish; the next one goes on from its center."""
    town = Town()
    first, second = town.learner(), town.learner()
    town.events(50)
    town.run(first, second, seconds=10)
    center = town.published().center_number
    town.clock.now += int(20e6)
    second.merge()
    assert second.leads()
    first.lease._ends = 1e300  # it slept
    town.events(10)
    first.merge()
    assert not first.leads()
    first.lease._ends = 0.0
    town.run(first, second, seconds=10)
    assert town.published().center_number >= center
    town.check()


def test_records_that_vanish_are_noticed() -> None:
    """The partition is folded anew, in a new epoch."""
    town = Town()
    town.events(40)
    learner = town.learner()
    town.run(learner)
    epoch = learner.worker.owned[1].epoch
    town.journal._facts.streams[1].pop()
    town.run(learner)
    assert learner.worker.history_changes.count == 1
    assert learner.worker.owned[1].epoch > epoch
    town.run(learner)
    assert town.published().positions[1] == town.journal.end(1)


def test_sums_that_cannot_be_read_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """And said; the other partitions go on."""
    town = Town()
    learner = town.learner()
    town.run(learner)
    partition = learner.worker.owned[2]
    learner.coordination.send({2: (partition.epoch, b"rubbish")})
    town.run(learner, seconds=1)
    assert "unreadable sums of a partition" in caplog.text


def test_unavailable_store_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when it is back, what was not sent is."""
    town = Town()
    learner = town.learner()
    town.events(10)
    town.run(learner)
    town.events(10)

    def away(*_: object) -> None:
        raise JournalUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(type(learner.coordination), "send", away)
        town.clock.now += 200_000
        with pytest.raises(JournalUnavailable):
            learner.step()
    town.run(learner)
    town.check()


def test_a_partition_that_cannot_be_read_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records wait, and the error is told again and again."""
    town = Town()
    learner = town.learner()
    town.run(learner)
    town.events(20)
    take_all = PartitionFold.take_all

    def refuse(self: PartitionFold, partition: int, page: list[Record], *more: Any) -> None:
        if partition == 0 and page:
            raise CorruptEvent("a record was changed")
        take_all(self, partition, page, *more)

    monkeypatch.setattr(PartitionFold, "take_all", refuse)
    for _ in range(3):
        town.clock.now += 200_000
        with pytest.raises(CorruptEvent):
            learner.step()
    assert town.published().positions[1:] == [town.journal.end(p) for p in (1, 2, 3)]
    monkeypatch.undo()
    town.run(learner)
    town.check()
