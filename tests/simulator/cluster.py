"""Everyone who lives in a world: processes with a bandit each, clients, writers, and mischief."""

from __future__ import annotations

from functools import partial

from belated.decider import MODES
from belated.exceptions import BanditOff
from belated.learner.fold import Fold
from tests.simulator.boundaries import BoundaryWriter
from tests.simulator.checks import (
    Disagreement,
    check_acknowledged,
    check_counts,
    check_lineage,
    check_names,
    check_oracle,
    check_requests,
    check_same,
    check_stamps,
    replayed,
)
from tests.simulator.clients import Client
from tests.simulator.messages import Server, rows_of
from tests.simulator.operators import TrimmingOperator, UndoingOperator
from tests.simulator.processes import Decider, Learner, Process
from tests.simulator.schedule import DAY
from tests.simulator.world import World
from tests.simulator.writers import Writer


class Cluster:
    """Everyone who lives in a world."""

    def __init__(self, world: World) -> None:
        knobs = world.knobs
        self.world = world
        self.learners = [Learner(world, f"learner {n}") for n in range(knobs.learners)]
        self.deciders = [Decider(world, f"decider {n}") for n in range(knobs.deciders)]
        self._settle_in()

    def _settle_in(self) -> None:
        """Those who are there in every run: clients, writers, and what befalls them."""
        world = self.world
        # Deciders are asked most of the time.
        writers = [Writer(world, f"writer {n}") for n in range(2)]
        servers: list[Server] = [*self._answering() * 3, *writers]
        for n in range(world.knobs.clients):
            Client(world, f"client {n}", servers)
        BoundaryWriter(world)
        UndoingOperator(world)
        TrimmingOperator(world)
        self._rng = world.stream("town")
        world.schedule.after(0, self._mischief)

    def _answering(self) -> list[Server]:
        return list(self.deciders)

    @property
    def _processes(self) -> list[Process]:
        return [*self.learners, *self.deciders]

    def live(self) -> None:
        """The time in which anything may fail."""
        self.world.schedule.run(until=self.world.start + self.world.knobs.span)

    def _mischief(self) -> None:
        """What befalls the store and the clocks, now and then."""
        world, rng, store, faults = self.world, self._rng, self.world.store, self.world.faults
        if not world.active:
            return
        wait, pause = rng.expovariate(10 / world.knobs.span), rng.expovariate(10 / world.knobs.span)
        partition = rng.randrange(world.knobs.partitions)
        clock, jump = rng.choice(world.clocks), rng.choice([-DAY, DAY])
        draw, torn = rng.random(), rng.random() < 0.5
        if store.reachable and faults.strike("store unreachable"):
            store.reachable = False
            world.schedule.after(pause, partial(setattr, store, "reachable", True))
        if faults.strike("killed at any time"):
            self._kill(rng.random())
        if faults.strike("clock jumped a day"):
            clock.offset += jump
            world.store_clock_moved |= clock is world.clocks[0]
        if store.has_snapshot(partition) and faults.strike("snapshot damaged"):
            store.spoil(partition, draw, torn)
        records = store.readable(partition)
        if records and faults.strike("record damaged"):
            place = partition, records[int(draw * len(records))].position
            store.veiled[place] = "damaged"
            world.schedule.after(pause, partial(store.veiled.pop, place, None))  # from a backup
        world.schedule.after(wait, self._mischief)

    def _kill(self, draw: float) -> None:
        """End one of the processes, whatever it is doing."""
        self._processes[int(draw * len(self._processes))].kill()

    def heal(self) -> None:
        """Nothing fails any longer: everyone is answered, and whatever was left is handed over."""
        world = self.world
        world.faults.stop()
        world.store.reachable = True
        world.store.veiled.clear()  # restored, and upgraded
        for clock in world.clocks:
            clock.offset = 0
        world.store_clock_moved = True
        self._start_all()
        world.schedule.run()

    def _start_all(self) -> None:
        for process in self._processes:
            process.start()

    def end(self) -> None:
        """The run is over; nothing waits."""

    def agree(self) -> str:
        """All invariants: at once, and when all windows are over; returns the digest."""
        world, rewards = self.world, self.world.knobs.rewards
        check_acknowledged(world)
        check_names(world)
        check_lineage(world)
        self._agree_now()
        world.pass_windows()
        fold = self._agree_now()
        check_stamps(world)
        check_requests(world)
        self._check_modes()
        if rewards.window is not None:
            assert fold.counts["pending"] == fold.counts["dormant"] == 0, "L: not all was settled"
        self._see_statuses(fold)
        return fold.digest

    def _check_modes(self) -> None:
        """L: every bandit obeys the mode that another has set."""
        writer, *_ = [process.bandit for process in self._processes]
        assert writer is not None
        for mode in (*MODES, "learn"):
            writer.change_mode(mode)
            for process in self._processes:
                bandit = process.bandit
                assert bandit is not None
                if bandit.mode != mode:
                    raise Disagreement(f"L: {process.name} does not read the mode {mode}")
                try:
                    decided = bandit.decide(rows_of("", bandit.policy.dim))
                except BanditOff:
                    obeyed = mode == "off"
                else:
                    obeyed = mode != "off" and (mode != "baseline" or decided.propensity == 1 / 3)
                if not obeyed:
                    raise Disagreement(f"L: {process.name} does not obey the mode {mode}")

    def _see_statuses(self, fold: Fold) -> None:
        for name, status in _STATUSES.items():
            self.world.faults.see(name, fold.counters.get(status, 0))

    def _agree_now(self) -> Fold:
        """L: learners, deciders, a new one, a replay and the oracle."""
        world = self.world
        newcomer = Learner(world, f"newcomer at {world.schedule.now}")
        everyone = [*self._processes, newcomer]
        for _ in range(2):  # the second time nothing is due: everyone has seen all
            for process in everyone:
                assert process.bandit is not None
                process.bandit.sync()
        replay = replayed(world, [world.store.end(p) for p in range(world.knobs.partitions)])
        for process in everyone:
            assert process.bandit is not None
            check_counts(process.name, process.bandit._fold)
            check_same("L", process.name, process.bandit._fold, replay)
        check_oracle(replay, [world.store.records(p) for p in range(world.knobs.partitions)])
        world.trace_event("all", f"agree on {replay.digest}")
        return replay


#: What the ledger's own counters say happened.
_STATUSES = {
    "told twice": "duplicate",
    "reward revised": "revised",
    "reward late": "late",
    "reward expired": "expired",
    "reward orphaned": "orphaned",
    "reward invalid": "invalid",
    "rivals under one id": "conflict",
    "decision activated": "activated",
    "decision voided": "voided",
}
