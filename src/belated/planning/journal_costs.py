"""What a journal costs: commits, bytes, and those who learn from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from belated.decider.decider import Made
from belated.events import Decision, encode
from belated.journals import Journal, Store
from belated.journals.sqlite.store import SQLiteStore
from belated.planning.costs import Linear, LogCosts
from belated.planning.processes import ServerProcesses
from belated.planning.service_costs import service_costs
from belated.planning.serving import bandit_of
from belated.planning.traffic import Traffic
from belated.published import PublishedModel
from belated.rewards import Explicit
from belated.service.learning.learners import learning_service, shared_learner
from belated.service.serving.definition import Definition, LearnerCount

#: Events in a small and in a large commit, and how many commits of each make a round.
SMALL, LARGE = (1, 50), (256, 8)
#: Rounds: the middle one counts.
ROUNDS = 3
#: Decisions that are learned from, in commits of so many.
LEARNED, TOGETHER = 8_192, 256
#: Models that are measured.
MODELS = 20
#: Partitions that several learners share.
SHARED = 4


class _Spent(NamedTuple):
    """What a commit took: CPU here, time until it was durable, CPU of the server."""

    here: float
    wait: float
    server: float


class JournalBench:
    """Measures a store.

    Args:
        store: With tables.
        address: Of the store.
        traffic: What is appended.
        reward_share: Rewards for each decision.
        servers: Processes of the store, if they run here.
    """

    def __init__(
        self,
        store: Store,
        address: str,
        traffic: Traffic,
        reward_share: float,
        servers: ServerProcesses,
    ) -> None:
        self._store = store
        self._bandit = bandit_of(store.name)
        self._address = address
        self._traffic = traffic
        self._share = reward_share
        self._servers = servers

    def costs(self) -> LogCosts:
        """Measure everything."""
        commit, wait, server = self._commits()
        decision_bytes, reward_bytes = self._bytes()
        event, publish = self._learner()
        return LogCosts(
            name=self._store.name,
            measured=True,
            commit=commit,
            wait=wait,
            server=server if self._servers else None,
            decision_bytes=decision_bytes,
            reward_bytes=reward_bytes,
            event=event,
            shared_event=self._shared_event(),
            publish=publish,
            service=service_costs(
                self._traffic,
                self._address,
                commit=commit,
                wait=wait,
                event=event,
                publish=publish,
            ),
        )

    # --- commits ---------------------------------------------------------------------------------

    def _commits(self) -> tuple[Linear, Linear, Linear]:
        rounds = []
        with self._store.journal(self._bandit) as journal:
            self._append(journal, *SMALL)  # the first ones take longer
            for _ in range(ROUNDS):
                rounds.append((self._append(journal, *SMALL), self._append(journal, *LARGE)))
        lines = []
        for part in range(len(_Spent._fields)):
            small = median(one[part] for one, _ in rounds)
            large = median(one[part] for _, one in rounds)
            lines.append(Linear.through((SMALL[0], small), (LARGE[0], large)))
        return lines[0], lines[1], lines[2]

    def _append(self, journal: Journal, size: int, count: int) -> _Spent:
        made = [self._traffic.decide(size) for _ in range(count)]
        served, here, start = self._servers.cpu(), time.process_time(), time.perf_counter()
        for one in made:
            journal.append(one.decisions, requests=one.requests)
        ended = time.perf_counter()
        spent = time.process_time() - here, ended - start, self._servers.cpu() - served
        return _Spent(*(one / count for one in spent))

    # --- bytes -----------------------------------------------------------------------------------

    def _bytes(self) -> tuple[float, float]:
        """Of a decision and of a reward; what is stored here is what is learned from later."""
        made = [self._traffic.decide(TOGETHER) for _ in range(LEARNED // TOGETHER)]
        few = max(TOGETHER, round(self._share * LEARNED))
        chosen = [one for part in made for one in part.decisions][:few]
        if self._store.name == "kafka":
            self._fill(self._bandit, made, chosen)
            return _packed(made[0]), _packed(Made(self._traffic.reward(chosen[:TOGETHER]), {}))  # type: ignore[arg-type]
        sizes = [self._size()]
        self._fill(self._bandit, made, [])
        sizes.append(self._size())
        self._fill(self._bandit, [], chosen)
        sizes.append(self._size())
        return (sizes[1] - sizes[0]) / LEARNED, (sizes[2] - sizes[1]) / len(chosen)

    def _fill(
        self, bandit: str, made: list[Made], rewarded: list[Decision], partitions: int | None = None
    ) -> None:
        with self._store.journal(bandit, partitions=partitions) as journal:
            for one in made:
                journal.append(one.decisions, requests=one.requests)
            for start in range(0, len(rewarded), TOGETHER):
                journal.append(self._traffic.reward(rewarded[start : start + TOGETHER]))

    def _size(self) -> int:
        """What the store takes on its disk, while nobody has it open."""
        if isinstance(self._store, SQLiteStore):
            path = self._store.path
            return sum(one.stat().st_size for one in Path(path.parent).glob(f"{path.name}*"))
        import psycopg

        with psycopg.connect(self._address) as connection:
            query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
            found = connection.execute(query + "AND relnamespace = 'belated'::regnamespace")
            return int(found.fetchone()[0])  # type: ignore[index]

    # --- learning --------------------------------------------------------------------------------

    def _definition(self, learners: LearnerCount) -> Definition:
        many = learners == "many"
        return Definition(
            f"{self._bandit}-shared" if many else self._bandit,
            self._traffic.policy,
            Explicit(),
            partitions=SHARED if many else None,
            learners=learners,
        )

    def _learner(self) -> tuple[float, float]:
        """CPU of the only learner for an event; of learner and decider for a model."""
        definition = self._definition("one")
        learner = learning_service(definition, self._store)
        session = self._store.session()
        try:
            start, count = time.thread_time(), 0
            while more := learner.step():
                count += more
            event = (time.thread_time() - start) / max(1, count)
            fold = learner.fold
            assert fold is not None

            def publish() -> None:
                model = fold.publish(learner.clock.now())
                learner.coordination.publish(model.write(), learner.epoch)

            def load() -> None:
                _, data = session.published({definition.name: 0})[definition.name]
                PublishedModel.read(data).model(definition.policy)

            return event, _each(publish, MODELS) + _each(load, MODELS)
        finally:
            session.close()
            learner.close()

    def _shared_event(self) -> float:
        """CPU of one of several learners for an event."""
        made = [self._traffic.decide(TOGETHER) for _ in range(LEARNED // TOGETHER)]
        chosen = [one for part in made for one in part.decisions]
        few = round(self._share * LEARNED)
        definition = self._definition("many")
        self._fill(definition.name, made, chosen[:few], SHARED)
        learner = shared_learner(definition, self._store)
        try:
            start, count = time.process_time(), 0
            while more := learner.worker.step():
                count += more
            return (time.process_time() - start) / max(1, count)
        finally:
            learner.close()


def _each(work: Callable[[], object], count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        work()
    return (time.thread_time() - start) / count


def _packed(made: Made) -> float:
    """Bytes of an event in a record of Kafka."""
    from belated.journals.kafka.commits import pack

    events = [encode(one) for one in made.decisions]
    return len(pack(events, None, made.requests)) / len(events)
