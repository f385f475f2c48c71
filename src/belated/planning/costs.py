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
    choose=60e-6,
    embedded_decision=4e-3,
    embedded_reward=4e-3,
    pending_bytes=190.0,
    logs={
        "sqlite": LogCosts(
            name="sqlite",
            measured=False,
            commit=Linear(350e-6, 16e-6),
            wait=Linear(3.8e-3, 31e-6),
            server=Linear(0.0, 0.0),
            decision_bytes=1295.0,
            reward_bytes=147.0,
            event=30e-6,
            shared_event=8e-6,
            publish=410e-6,
            service=ServiceCosts(105e-6, 40e-6, 1e-3, 0.003, 1e-3, Linear(4e-3, 40e-6)),
        ),
        "postgresql": LogCosts(
            name="postgresql",
            measured=False,
            commit=Linear(290e-6, 7.6e-6),
            wait=Linear(3.5e-3, 41e-6),
            server=Linear(1e-3, 30e-6),
            decision_bytes=1320.0,
            reward_bytes=200.0,
            event=24e-6,
            shared_event=6e-6,
            publish=430e-6,
            service=ServiceCosts(105e-6, 40e-6, 1e-3, 0.003, 1e-3, Linear(4e-3, 40e-6)),
        ),
        "kafka": LogCosts(
            name="kafka",
            measured=False,
            commit=Linear(300e-6, 8e-6),
            wait=Linear(5e-3, 20e-6),
            server=Linear(2e-3, 10e-6),
            decision_bytes=1000.0,
            reward_bytes=90.0,
            event=24e-6,
            shared_event=6e-6,
            publish=430e-6,
            service=ServiceCosts(105e-6, 40e-6, 1e-3, 0.003, 1e-3, Linear(4e-3, 40e-6)),
        ),
    },
)
