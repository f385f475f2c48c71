"""The faults: how likely each is in a run, and how often it occurred."""

from __future__ import annotations

from collections import Counter

from tests.simulator.settings import stream

#: Injected faults, with their typical probability at each opportunity.
STRIKES = {
    # Between clients and servers.
    "message lost": 0.05,
    "message twice": 0.08,
    "message 30 days late": 0.02,
    # At the store.
    "store unreachable": 0.3,
    "disk full": 0.02,
    "lock timed out": 0.3,
    "commit unknown": 0.03,
    "power lost": 0.02,
    "transaction idle": 0.2,
    "transaction aborted": 0.1,
    # To processes.
    "killed before answering": 0.02,
    "killed before saving": 0.05,
    "killed between partitions": 0.05,
    "killed at any time": 0.3,
    "stopped in good order": 0.03,
    "partition taken over": 0.2,
    "clock jumped a day": 0.3,
    # To what is stored.
    "snapshot damaged": 0.3,
    "record damaged": 0.15,
    "event of a newer release": 0.15,
    "spool disk full": 0.05,
    "killed before the spool was synced": 0.05,
}
#: Consequences of faults, and what clients and journals do unprompted: counted, not drawn.
SIGHTINGS = (
    "message out of order",
    "commits out of order",
    "unsynced tail dropped",
    "reader stalled",
    "contested id",
    "record undone",
    "record overwritten",
    "record trimmed",
    "owner superseded",
    "damaged snapshot discarded",
    "fold halted at a record",
    "event spooled",
    "spool torn",
    "told before the decision",
    "told twice",
    "reward revised",
    "reward late",
    "reward expired",
    "reward orphaned",
    "reward invalid",
    "subject rewarded",
    "rivals under one id",
    "decision activated",
    "decision voided",
    "features changed",
    "features rolled back",
)
FAULTS = (*STRIKES, *SIGHTINGS)

#: Additional faults and consequences if several learners share a bandit.
SHARED_STRIKES = {"sums late": 0.1, "worker slept": 0.2}
SHARED_SIGHTINGS = ("partition lost", "partition given back", "center moved", "merged by age")
#: These cannot occur there: a service's learner reports no halts, "worker slept" replaces
#: take-overs, the service answers before it folds anything, and its features stay as they are.
_UNSEEN = (
    *("fold halted at a record", "partition taken over", "told before the decision"),
    *("features changed", "features rolled back"),
)
SHARED_FAULTS = tuple(
    name for name in (*FAULTS, *SHARED_STRIKES, *SHARED_SIGHTINGS) if name not in _UNSEEN
)


class Killed(BaseException):
    """Ends the process immediately; no code in the process may catch it."""


class Faults:
    """The faults of one run: some runs are calm, some brutal, and most leave out some faults.

    >>> faults = Faults(seed=7)
    >>> faults.stop()
    >>> faults.strike("disk full")
    False
    """

    def __init__(self, seed: int, *, shared: bool = False) -> None:
        mix = stream(seed, "mix")
        violence = mix.choice([0.0, 0.3, 1.0, 1.0, 3.0])
        self.counts: Counter[str] = Counter()
        strikes = STRIKES | (SHARED_STRIKES if shared else {})
        self._rngs = {name: stream(seed, name) for name in strikes}
        self._rates = {
            name: min(0.8, violence * rate * mix.choice([0.0, 1.0, 2.0]))
            for name, rate in strikes.items()
        }

    def strike(self, name: str) -> bool:
        """Return whether this fault occurs now, and count it."""
        rate = self._rates[name]
        if rate == 0.0 or self._rngs[name].random() >= rate:
            return False
        self.counts[name] += 1
        return True

    def see(self, name: str, times: int = 1) -> None:
        """Count a consequence."""
        assert name in (*SIGHTINGS, *SHARED_SIGHTINGS), name
        self.counts[name] += times

    def stop(self) -> None:
        """Inject no more faults."""
        self._rates = dict.fromkeys(self._rates, 0.0)
