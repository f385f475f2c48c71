"""The faults: how often each strikes in a run, and how often it did."""

from __future__ import annotations

from collections import Counter

from tests.simulator.schedule import stream

#: What may go wrong, and its usual chance at each opportunity.
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
#: What clients and journals do of themselves, and what follows from the faults: seen, not drawn.
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
    "rivals under one id",
    "decision activated",
    "decision voided",
)
FAULTS = (*STRIKES, *SIGHTINGS)

#: The same where several learners share a bandit: what more may go wrong, and what is seen.
SHARED_STRIKES = {"sums late": 0.1, "worker slept": 0.2}
SHARED_SIGHTINGS = ("partition lost", "partition given back", "center moved")
#: What no learner of a service can tell; what is called "worker slept" here; what a service, which
#: answers before anything is folded, tells nobody.
_UNSEEN = ("fold halted at a record", "partition taken over", "told before the decision")
SHARED_FAULTS = tuple(
    name for name in (*FAULTS, *SHARED_STRIKES, *SHARED_SIGHTINGS) if name not in _UNSEEN
)


class Killed(BaseException):
    """The process ends here and now: nothing in it may handle this."""


class Faults:
    """The mix of one run: some are calm, some brutal, and in most some faults do not occur.

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
        """Whether this fault happens here and now."""
        rate = self._rates[name]
        if rate == 0.0 or self._rngs[name].random() >= rate:
            return False
        self.counts[name] += 1
        return True

    def see(self, name: str, times: int = 1) -> None:
        """Something happened that no one draws."""
        assert name in (*SIGHTINGS, *SHARED_SIGHTINGS), name
        self.counts[name] += times

    def stop(self) -> None:
        """From now on nothing fails."""
        self._rates = dict.fromkeys(self._rates, 0.0)
