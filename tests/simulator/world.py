"""What all actors of a run share."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from random import Random

from belated import kernels
from belated.events import Decision
from tests.simulator.faults import Faults
from tests.simulator.knobs import Knobs, shared_knobs
from tests.simulator.messages import Answer, Request
from tests.simulator.network import Network
from tests.simulator.schedule import DAY, SECOND, Clock, Schedule, stream
from tests.simulator.store import Store

#: Nothing is compiled: runs are short.
PLAIN = kernels.plain()


class World:
    """Time, the store, the network, the faults, and a trace of what happened.

    Args:
        seed: everything is drawn from it.
        listen: is given each line of the trace.
        shared: whether several learners share the partitions of a service.

    Attributes:
        sent: all that was ever sent to a server.
        acknowledged: what was answered as safe, with the answer.
        answered: by the names under which a decision was given, its bytes.
    """

    def __init__(
        self, seed: int, listen: Callable[[str], object] | None = None, *, shared: bool = False
    ) -> None:
        self.seed = seed
        self.knobs = shared_knobs(seed) if shared else Knobs.draw(seed)
        self.faults = Faults(seed, shared=shared)
        self.schedule = Schedule(seed)
        self.start = self.schedule.now
        self.clocks: list[Clock] = []
        self.network = Network(seed, self.schedule, self.faults)
        self.store = Store(self.knobs.partitions, self.clock("store"), self.faults)
        self.sent: list[Request | Decision] = []
        self.acknowledged: list[tuple[Request, Answer]] = []
        self.answered: dict[str, bytes] = {}
        #: Whether the store's clock has jumped: then leases end early, or late.
        self.store_clock_moved = False
        self._meetings: dict[str, Callable[[], object]] = {}
        self._listen = listen
        self._trace = blake2b(digest_size=16)

    def stream(self, name: str) -> Random:
        """The random numbers of one actor."""
        return stream(self.seed, name)

    def clock(self, name: str) -> Clock:
        """The clock of one machine, wrong by up to a minute."""
        skew = self.stream(f"{name}'s clock").randint(-60, 60) * SECOND if self.active else 0
        self.clocks.append(Clock(self.schedule, skew))
        return self.clocks[-1]

    def on_meeting(self, who: str, action: Callable[[], object]) -> None:
        """Say what some actors do when they meet."""
        self._meetings[who] = action

    def meet(self, who: str) -> None:
        """Have them meet, here and now."""
        if self.active and who in self._meetings:
            self._meetings[who]()

    @property
    def active(self) -> bool:
        """Whether the time in which anything may fail is not over."""
        return self.schedule.now < self.start + self.knobs.span

    def pass_windows(self) -> None:
        """Let time go by until all windows are over: also of what a clock ahead has stamped."""
        records = (self.store.records(one) for one in range(self.knobs.partitions))
        stamps = [stream[-1].recorded for stream in records if stream]
        window = self.knobs.rewards.window_us or 0
        self.schedule.now = max(self.schedule.now, *stamps, 0) + window + 3 * DAY

    def trace_event(self, who: str, what: object) -> None:
        """Write a line of the trace."""
        line = f"{(self.schedule.now - self.start) / DAY:.9f} {who} {what}"
        self._trace.update(line.encode())
        if self._listen is not None:
            self._listen(line)

    @property
    def trace(self) -> str:
        """Names everything that has happened: equal for equal runs."""
        return self._trace.hexdigest()
