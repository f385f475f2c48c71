"""What things cost on a machine: the numbers a plan is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Linear:
    """What it costs to do some things together.

    Attributes:
        fixed: Once, however many there are.
        each: For each of them.

    >>> Linear(fixed=2.0, each=0.5).of(4)
    4.0
    """

    fixed: float
    each: float

    def of(self, count: float) -> float:
        """Return the cost of so many together."""
        return self.fixed + self.each * count

    @classmethod
    def through(cls, few: tuple[float, float], many: tuple[float, float]) -> Linear:
        """Return the line through two measurements, each a count and its cost; never negative.

        >>> Linear.through((1, 3.0), (11, 8.0))
        Linear(fixed=2.5, each=0.5)
        """
        each = max(0.0, (many[1] - few[1]) / (many[0] - few[0]))
        return cls(max(0.0, few[1] - each * few[0]), each)


@dataclass(frozen=True)
class ServiceCosts:
    """What a service costs: CPU in seconds.

    Attributes:
        request: Of a decision over HTTP, but for its commit.
        reward: Of a reward over HTTP, but for its commit.
        commit: Of a commit with all it leads to, but for what it costs by the event.
        idle: Of a second without requests.
        round: Of a learner that finds something new, folds it, and looks for more.
        wait: Seconds from one commit to the next while events wait, beside a learner.
    """

    request: float
    reward: float
    commit: float
    idle: float
    round: float
    wait: Linear


@dataclass(frozen=True)
class LogCosts:
    """What a journal of one kind of store costs. Times are in seconds, those of CPU by one core.

    Attributes:
        name: The kind of store: ``sqlite``, ``postgresql`` or ``kafka``.
        measured: Whether it was measured here; otherwise these are reference figures.
        commit: CPU of the process that appends, for a commit of so many events.
        wait: Time until such a commit is durable, if nobody else commits.
        server: CPU of the database or of all brokers, for such a commit; None if nobody knows.
        decision_bytes: Of a decision with its request, as it is stored.
        reward_bytes: Of a reward.
        event: CPU of the only learner of a bandit for an event.
        shared_event: CPU of one of several learners for an event.
        publish: CPU of a model, of the learner and of a decider.
        service: Of a service on it.
    """

    name: str
    measured: bool
    commit: Linear
    wait: Linear
    server: Linear | None
    decision_bytes: float
    reward_bytes: float
    event: float
    shared_event: float
    publish: float
    service: ServiceCosts


@dataclass(frozen=True)
class Costs:
    """What everything costs: CPU in seconds, memory in bytes.

    Attributes:
        dim: Features of a row that was measured with.
        actions: Rows of a request.
        choose: CPU to choose one action, without HTTP and without a journal.
        embedded_decision: Time of ``Bandit.decide`` on SQLite, until it is durable.
        embedded_reward: Time of ``Bandit.observe``.
        pending_bytes: Memory of a learner for a decision that it remembers.
        logs: Journals, by the kind of their store.
    """

    dim: int
    actions: int
    choose: float
    embedded_decision: float
    embedded_reward: float
    pending_bytes: float
    logs: dict[str, LogCosts]


#: For what is not measured; ``benchmarks/plan.py --reference`` prints them.
REFERENCE = Costs(
    dim=20,
    actions=10,
    choose=117e-6,
    embedded_decision=3.3e-3,
    embedded_reward=3.3e-3,
    pending_bytes=189.0,
    logs={
        "sqlite": LogCosts(
            name="sqlite",
            measured=False,
            commit=Linear(410e-6, 31e-6),
            wait=Linear(3.0e-3, 59e-6),
            server=Linear(0.0, 0.0),
            decision_bytes=1295.0,
            reward_bytes=148.0,
            event=34e-6,
            shared_event=12.6e-6,
            publish=470e-6,
            service=ServiceCosts(
                request=111e-6,
                reward=51e-6,
                commit=1.28e-3,
                idle=0.0026,
                round=2.7e-3,
                wait=Linear(2.7e-3, 59e-6),
            ),
        ),
        "postgresql": LogCosts(
            name="postgresql",
            measured=False,
            commit=Linear(168e-6, 14.5e-6),
            wait=Linear(0.7e-3, 47e-6),
            server=Linear(377e-6, 23e-6),
            decision_bytes=1320.0,
            reward_bytes=200.0,
            event=44e-6,
            shared_event=5.6e-6,
            publish=770e-6,
            service=ServiceCosts(
                request=138e-6,
                reward=90e-6,
                commit=1.19e-3,
                idle=0.0067,
                round=0.77e-3,
                wait=Linear(5.4e-3, 47e-6),
            ),
        ),
        "kafka": LogCosts(
            name="kafka",
            measured=False,
            commit=Linear(365e-6, 4.8e-6),
            wait=Linear(9.8e-3, 6.7e-6),
            server=Linear(11.0e-3, 5.9e-6),
            decision_bytes=989.0,
            reward_bytes=54.0,
            event=47e-6,
            shared_event=19.6e-6,
            publish=910e-6,
            service=ServiceCosts(
                request=127e-6,
                reward=129e-6,
                commit=1.9e-3,
                idle=0.0048,
                round=1.43e-3,
                wait=Linear(8.9e-3, 6.7e-6),
            ),
        ),
    },
)
