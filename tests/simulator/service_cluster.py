"""One run of the service: deciders, learners and an operator."""

from __future__ import annotations

from belated.decider import MODES
from belated.events import Decision
from belated.exceptions import JournalUnavailable
from belated.learner import Fold
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
from tests.simulator.cluster import Cluster
from tests.simulator.faults import Killed
from tests.simulator.messages import DecisionRequest, rows_of
from tests.simulator.messages import Server as Answering
from tests.simulator.schedule import SECOND
from tests.simulator.servers import TROUBLE, DeciderServer, LearnerServer, Server
from tests.simulator.service_store import SimulatedStore, change_mode
from tests.simulator.world import World

#: Seconds that a learner is given, one by one, until it has nothing to do.
PATIENCE = 20_000


class ServiceCluster(Cluster):
    """Everyone who lives in a world with a service."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = SimulatedStore(world)
        knobs = world.knobs
        self.learner_servers = [
            LearnerServer(world, self.store, f"learner {n}") for n in range(knobs.learners)
        ]
        self.decider_servers = [
            DeciderServer(world, self.store, f"decider {n}") for n in range(knobs.deciders)
        ]
        world.on_meeting("learners", self._learners_meet)
        self._operator = world.stream("operator")
        world.schedule.after(0, self._operate)
        self._settle_in()

    def _answering(self) -> list[Answering]:
        return list(self.decider_servers)

    @property
    def _servers(self) -> list[Server]:
        return [*self.learner_servers, *self.decider_servers]

    def _learners_meet(self) -> None:
        for learner in self.world.stream("order").sample(
            self.learner_servers, len(self.learner_servers)
        ):
            if learner.host is not None:
                learner.host.run(learner.work)

    def _operate(self) -> None:
        """Change the mode, now and then."""
        if self.world.active:
            self._change_mode(self._operator.choice(["learn", "learn", "learn", *MODES]))
            wait = self._operator.expovariate(5 / self.world.knobs.span)
            self.world.schedule.after(wait, self._operate)

    def _change_mode(self, mode: str) -> None:
        try:
            change_mode(self.world, mode)
        except (Killed, *TROUBLE) as error:
            self.world.trace_event("the operator", error)
        else:
            self.world.trace_event("the operator", mode)

    def _kill(self, draw: float) -> None:
        host = self._servers[int(draw * len(self._servers))].host
        if host is not None:
            host.kill()

    def _start_all(self) -> None:
        # A lease that was granted while the store's clock was a day ahead would last so long.
        self.store.lead.until = min(self.store.lead.until, self.world.store.now())
        self._change_mode("learn")
        for server in self._servers:
            server.start()
        self._poll()

    def _poll(self) -> None:
        """Every decider looks at the mode and the model, and delivers what waits."""
        for decider in self.decider_servers:
            decider.poll()
        self.world.schedule.run()

    def end(self) -> None:
        """What was begun is not awaited any more."""
        for server in self._servers:
            if server.host is not None:
                server.host.stop()

    def agree(self) -> str:
        """All laws: at once, and when all windows are over; returns the digest."""
        world = self.world
        check_acknowledged(world)
        check_names(world)
        check_lineage(world)
        self._agree_on_models()
        world.pass_windows()
        fold = self._agree_on_models()
        check_stamps(world)
        check_requests(world)
        self._check_details(fold)
        self._check_modes()
        self._see_statuses(fold)
        return fold.digest

    def _agree_on_models(self) -> Fold:
        """L: whoever leads, each decider has its model: that of a replay, and the oracle's."""
        world = self.world
        for learner in self.learner_servers:  # each leads once, from the snapshot of the one before
            service = learner.service
            for _ in range(PATIENCE):
                world.schedule.run(until=world.schedule.now + SECOND)
                try:
                    count = service.step()
                except JournalUnavailable:  # a snapshot that was written while there were faults
                    continue
                if count == 0 and service.fold is not None and service._fit is None:
                    break
            if service.fold is None:
                raise Disagreement(f"L: {learner.name} does not lead, though nobody else does")
            fold = service.fold
            replay = replayed(world, [world.store.end(p) for p in range(world.knobs.partitions)])
            check_counts(learner.name, fold)
            check_same("L", learner.name, fold, replay)
            check_oracle(fold, [world.store.records(p) for p in range(world.knobs.partitions)])
            self._poll()
            for decider in self.decider_servers:
                bandit = decider.bandit
                model = bandit.decider.model
                found = len(bandit.decider.unapplied), bandit.version, model.n, model.pending
                wanted = 0, fold.version, fold.model.n, fold.model.pending
                if found != wanted:
                    raise Disagreement(f"L: {decider.name} has {found}, and should have {wanted}")
            fold.save(service.journal)
            service.lease.close()
            service._stand_by()
        world.trace_event("all", f"agree on {replay.digest}")
        return replay

    def _check_details(self, fold: Fold) -> None:
        """L: what a decider tells of a decision is what the learner knows of it."""
        world = self.world
        ids = {
            record.event.id
            for partition in range(world.knobs.partitions)
            for record in world.store.readable(partition)
            if isinstance(record.event, Decision)
        } - world.store.forgotten
        bandit = self.decider_servers[0].bandit
        for id in sorted(ids):
            entry = fold.entry(id)
            history = bandit._read_history(id, bandit._reader)
            if entry is None or history.forgotten or history.incomplete:
                continue
            if history.state != entry.state:
                raise Disagreement(f"L: {id} is told {history.state}, and is {entry.state}")

    def _check_modes(self) -> None:
        """L: every decider obeys the mode that is written."""
        world = self.world
        for mode in (*MODES, "learn"):
            self._change_mode(mode)
            self._poll()
            for decider in self.decider_servers:
                if decider.bandit.decider.mode != mode:
                    raise Disagreement(f"L: {decider.name} does not obey the mode {mode}")
                before = decider.bandit.decider.model.decided.copy()
                answers: list[object] = []
                name = f"{decider.name} in mode {mode} at {world.schedule.now}"
                self._decide(decider, name, answers)
                same = (before == decider.bandit.decider.model.decided).all()
                obeyed = {
                    "off": not answers,
                    "baseline": answers == [1 / len(rows_of("", world.knobs.policy.dim))],
                    "freeze": bool(answers) and same,
                    "learn": bool(answers),
                }
                if not obeyed[mode]:
                    raise Disagreement(f"L: {decider.name} in mode {mode}: {answers}, {same}")

    def _decide(self, decider: DeciderServer, name: str, answers: list[object]) -> None:
        def reply(answer: object) -> None:
            assert isinstance(answer, list)
            answers.extend(one.propensity for one in answer)

        decider.receive(DecisionRequest(name), reply)
        self.world.schedule.run()
