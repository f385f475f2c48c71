"""One run of the service with several learners that share the partitions."""

from __future__ import annotations

import math

from belated.learner import Fold
from belated.published import PublishedModel
from tests.simulator.checks import Disagreement, check_oracle, replayed
from tests.simulator.schedule import SECOND
from tests.simulator.servers import DeciderServer, Server
from tests.simulator.service_cluster import ServiceCluster
from tests.simulator.service_store import SimulatedStore
from tests.simulator.shared_checks import check_merged, check_slots
from tests.simulator.shared_servers import WorkerServer
from tests.simulator.world import World

#: Seconds that learners are given, one by one, until they have nothing to do.
PATIENCE = 500


class SharedCluster(ServiceCluster):
    """Everyone who lives in a world whose learners share the partitions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = SimulatedStore(world)
        knobs = world.knobs
        self.workers = [
            WorkerServer(world, self.store, f"learner {n}") for n in range(knobs.learners)
        ]
        self.decider_servers = [
            DeciderServer(world, self.store, f"decider {n}") for n in range(knobs.deciders)
        ]
        self._operator = world.stream("operator")
        world.schedule.after(0, self._operate)
        self._settle_in()

    @property
    def _servers(self) -> list[Server]:
        return [*self.workers, *self.decider_servers]

    def _start_all(self) -> None:
        # Sessions that were granted while the store's clock was a day ahead would last so long.
        now = self.world.store.now()
        lead = self.store.lead
        lead.workers = {name: (min(until, now), p) for name, (until, p) in lead.workers.items()}
        super()._start_all()

    def agree(self) -> str:
        """All laws: as of any service, and that every record lies where its id says."""
        check_slots(self.world)
        return super().agree()

    def _agree_on_models(self) -> Fold:
        """M, L: all learners together; then one of them alone, from what the others saved."""
        self._agree_with(self.workers)
        first, *others = self.world.stream("the last").sample(self.workers, len(self.workers))
        for worker in others:
            worker.service.close()
            assert worker.host is not None
            worker.host.stop()
        replay = self._agree_with([first])
        for worker in others:
            worker.start()
        return replay

    def _agree_with(self, workers: list[WorkerServer]) -> Fold:
        world = self.world
        ends = self._work(workers)
        replay = replayed(world, ends)
        leaders = [one for one in workers if one.service.leads()]
        if len(leaders) != 1:
            raise Disagreement(f"L: {len(leaders)} learners merge")
        merging = leaders[0].service.merger.merging
        assert merging is not None
        check_merged(world, merging, PublishedModel.read(self.store.lead.data))
        owned = [p for worker in workers for p in worker.service.worker.owned]
        if sorted(owned) != list(range(world.knobs.partitions)):
            raise Disagreement(f"W: the workers own {sorted(owned)}")
        for worker in workers:
            for partition, one in worker.service.worker.owned.items():
                if one.fold.ledgers[partition].digest != replay.ledgers[partition].digest:
                    raise Disagreement(f"H: {worker.name} has other entries in {partition}")
        check_oracle(replay, [world.store.records(p) for p in range(world.knobs.partitions)])
        self._check_deciders(replay)
        world.trace_event("all", f"agree on {replay.digest}")
        return replay

    def _work(self, workers: list[WorkerServer]) -> list[int]:
        """Until a model knows all there is; returns where the partitions end."""
        world, store = self.world, self.world.store
        # A page may be one record.
        steps = PATIENCE + max(store.end(p) for p in range(world.knobs.partitions))
        for _ in range(steps):
            world.schedule.run(until=world.schedule.now + SECOND)
            for worker in workers:  # nothing renews what they hold by now
                worker.membership.doubt([])
                worker.service.merger.lease._ends = -math.inf
            busy = sum([worker.step() for worker in workers])
            ends = [store.end(p) for p in range(world.knobs.partitions)]
            owned = sum(len(worker.service.worker.owned) for worker in workers)
            data = self.store.lead.data
            known = PublishedModel.read(data).positions if data else []
            if not busy and owned == len(ends) and known == ends:
                return ends
        raise Disagreement("L: no model comes to know all records")

    def _check_deciders(self, replay: Fold) -> None:
        self._poll()
        for decider in self.decider_servers:
            bandit = decider.bandit
            model = bandit.decider.model
            found = len(bandit.decider.unapplied), bandit.version, model.n, model.pending
            wanted = 0, replay.version, replay.model.n, replay.model.pending
            if found != wanted:
                raise Disagreement(f"L: {decider.name} has {found}, and should have {wanted}")
