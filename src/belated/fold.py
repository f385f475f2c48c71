"""The state of a bandit: a fold over its journal.

For each partition a ledger and an account of the learner, and one learner for all. A snapshot is of
one partition, and only a shortcut: the same state comes from reading the journal from its start.
"""

from __future__ import annotations

from contextlib import nullcontext
from hashlib import blake2b

import numpy as np

from belated.events import Record
from belated.exceptions import BelatedError, InvalidInput
from belated.journals import Journal, Snapshot
from belated.kernels import Kernels
from belated.learner import Account, Learner
from belated.ledger import Ledger, State
from belated.ledger.packing import VERSION, pack, unpack
from belated.models import Model
from belated.policies import Policy
from belated.rewards import Rewards, as_duration

#: Records read at a time.
PAGE = 10_000
#: So many records, and this share of all observations, are folded in bulk: one fit at the end.
MANY, SHARE = 1_000, 0.05


class Fold:
    """Folds records, and says what they come to.

    Args:
        policy: whose model is learned.
        rewards: what silence means.
        partitions: of the journal.
        retention: for how long a decision takes rewards, in microseconds.
        until: records stamped later are not there; None for all.
        using: kernels to use instead of the best available.
    """

    def __init__(
        self,
        policy: Policy,
        rewards: Rewards,
        *,
        partitions: int = 1,
        retention: int | None = None,
        until: int | None = None,
        using: Kernels | None = None,
    ) -> None:
        self.learner = Learner(policy, lanes=partitions, using=using)
        self.rewards = rewards
        self.retention = retention
        self.until = until
        self.least, self.most = rewards.range(policy.family.support)
        self.accounts = [Account(self.learner, lane) for lane in range(partitions)]
        self.ledgers = [
            Ledger(rewards, account, least=self.least, most=self.most, retention=retention)
            for account in self.accounts
        ]
        self.positions = [0] * partitions
        #: Records folded so far, over all partitions: the version of the model.
        self.version = 0
        self._saved: list[frozenset[str]] = [frozenset()] * partitions

    def check_default(self) -> None:
        """Refuse a default that is no reward of this family."""
        rewards = self.rewards
        if rewards.silent == "defaulted" and not self.least <= rewards.default <= self.most:
            bounds = f"[{self.least:g}, {self.most:g}]"
            message = f"the default value {rewards.default} is outside {bounds}: choose one within"
            raise InvalidInput(message, rewards.default)

    @property
    def model(self) -> Model:
        """The model, up to date."""
        return self.learner.model

    def take(self, record: Record) -> str:
        """Fold one record; returns what it meant."""
        status = self.ledgers[record.partition].fold(record)
        self.positions[record.partition] = record.position
        self.version += 1
        return status

    def is_much(self, new: int) -> bool:
        """Whether so many records are sooner folded in bulk, though it ends with a fit of all."""
        return new >= max(MANY, SHARE * self.learner.model.n)

    def catch_up(self, journal: Journal) -> int:
        """Fold all that is new in every partition; returns how many records that were."""
        start = self.version
        behind = [journal.end(p) - position for p, position in enumerate(self.positions)]
        # One fit at the end, however many partitions there are.
        with self.learner.bulk() if self.is_much(sum(behind)) else nullcontext():
            for partition, new in enumerate(behind):
                while new and (page := self._page(journal, partition)):
                    self.take_all(partition, page)
        return self.version - start

    def take_all(self, partition: int, page: list[Record]) -> None:
        """Fold records of one partition."""
        fold, count = self.ledgers[partition].fold, 0
        try:
            for record in page:
                fold(record)
                count += 1
        finally:  # of a record that cannot be folded nothing was taken, and all before it was
            if count:
                self.positions[partition] = page[count - 1].position
                self.version += count

    def _page(self, journal: Journal, partition: int) -> list[Record]:
        page = journal.read(partition, self.positions[partition], PAGE)
        if self.until is not None and page and page[-1].recorded > self.until:
            page = [record for record in page if record.recorded <= self.until]
        return page

    # --- what it comes to ----------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Decisions by state, over all partitions."""
        return {
            state.name.lower(): sum(ledger.counts[state] for ledger in self.ledgers)
            for state in State
        }

    @property
    def counters(self) -> dict[str, int]:
        """Events by status, over all partitions."""
        total: dict[str, int] = {}
        for ledger in self.ledgers:
            for status, count in ledger.counters.items():
                if count:
                    total[status] = total.get(status, 0) + count
        return dict(sorted(total.items()))

    @property
    def digest(self) -> str:
        """Names the state of every decision: equal for equal sets of records, however split."""
        total = sum(ledger.digest for ledger in self.ledgers) % (1 << 128)
        what = total.to_bytes(16) + repr(sorted(self.counts.items())).encode()
        return blake2b(what, digest_size=16).hexdigest()

    # --- snapshots -----------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Of all that a snapshot depends on; one of another fold or format is of no use."""
        policy = self.learner.policy
        what: tuple[object, ...] = VERSION, self.rewards, self.retention, policy.family, policy.dim
        if policy.learns_after is not None:  # what is held back until then is in the snapshot too
            what += (policy.learns_after,)
        return blake2b(repr(what).encode(), digest_size=16).hexdigest()

    def save(self, journal: Journal, *, whole: bool = False) -> None:
        """Store a snapshot of every partition; blocks that were stored before are kept.

        Args:
            journal: to keep it.
            whole: store those blocks again too.
        """
        for partition, (ledger, account) in enumerate(
            zip(self.ledgers, self.accounts, strict=True)
        ):
            pieces = pack(ledger) | account.pack()
            lasting = frozenset(name for name in pieces if _lasting(name))
            kept = frozenset() if whole else lasting & self._saved[partition]
            given = {name: data for name, data in pieces.items() if name not in kept}
            position = self.positions[partition]
            journal.save(Snapshot(partition, position, self.fingerprint, given, kept))
            self._saved[partition] = lasting

    def load(self, journal: Journal) -> None:
        """Start from the snapshots of a journal, where it has some of use; in a new fold only."""
        found = [journal.load(partition) for partition in range(journal.partitions)]
        mine = [one for one in found if one is not None and one.fingerprint == self.fingerprint]
        if mine:
            with self.learner.bulk():
                for snapshot in mine:
                    self._load(snapshot.partition, snapshot)

    def _load(self, partition: int, snapshot: Snapshot) -> None:
        ledger, account = self.ledgers[partition], self.accounts[partition]
        try:
            unpack(ledger, snapshot.pieces)
            account.unpack(snapshot.pieces)
        except (KeyError, ValueError) as error:
            message = "a snapshot with the right checksum could not be read"
            raise BelatedError(f"{message}: {error}") from error
        account.expect_all(ledger.numbers(State.PENDING))
        self.positions[partition] = snapshot.position
        self.version += sum(ledger.counters.values())
        self._saved[partition] = frozenset(name for name in snapshot.pieces if _lasting(name))


def _lasting(name: str) -> bool:
    return name.startswith("rows ") and not name.endswith("so far")


def retention_us(retention: object, rewards: Rewards) -> int | None:
    """The retention in microseconds, where it makes sense with the window."""
    if retention is None:
        return None
    span = as_duration(retention, "retention")
    if rewards.window_us is not None and span < rewards.window_us:
        message = f"retention {retention} is shorter than the window {rewards.window}"
        raise InvalidInput(f"{message}: rewards would expire before they are late", retention)
    return span


def same_sums(one: Fold, other: Fold, tolerance: float = 1e-9) -> bool:
    """Whether two folds have learned from the same: counts exactly, sums to rounding."""
    first, second = one.learner.observed.moments(), other.learner.observed.moments()
    scale = max(1.0, float(np.abs(first.gram).max(initial=0.0)), first.square)
    return (
        one.counts == other.counts
        and first.n == second.n
        and bool(np.allclose(first.gram, second.gram, rtol=tolerance, atol=tolerance * scale))
        and bool(np.allclose(first.cross, second.cross, rtol=tolerance, atol=tolerance * scale))
        and abs(first.square - second.square) <= tolerance * scale
    )
