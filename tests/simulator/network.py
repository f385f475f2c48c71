"""The network between clients and servers: it loses, repeats, delays and reorders."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.faults import Faults
from tests.simulator.schedule import DAY, SECOND, Schedule, stream


class Network:
    """Delivers messages, as well as it can.

    >>> schedule, faults = Schedule(seed=7), Faults(seed=7)
    >>> faults.stop()
    >>> Network(7, schedule, faults).send(lambda: print("hello"))
    >>> schedule.run()
    hello
    """

    def __init__(self, seed: int, schedule: Schedule, faults: Faults) -> None:
        self._rng = stream(seed, "network")
        self._schedule = schedule
        self._faults = faults
        self._sent = 0
        self._latest = 0  # the youngest message that has arrived

    def send(self, deliver: Callable[[], object]) -> None:
        """Call ``deliver`` at the other side: later, twice, or never."""
        self._sent += 1
        number = self._sent

        def arrive() -> None:
            if number < self._latest:
                self._faults.see("message out of order")
            self._latest = max(self._latest, number)
            deliver()

        if self._faults.strike("message lost"):
            return
        for _ in range(2 if self._faults.strike("message twice") else 1):
            late = 30 * DAY if self._faults.strike("message 30 days late") else 0
            self._schedule.after(late + self._rng.expovariate(1 / SECOND), arrive)
