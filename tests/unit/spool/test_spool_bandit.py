"""A bandit in front of a spool goes on while its journal is away."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Event
from belated.core.inputs import Matrix
from belated.exceptions import (
    InvalidInput,
    JournalReadUnavailable,
    SnapshotWarning,
)
from belated.journals import SpoolJournal
from belated.journals.log import Requests
from belated.testing import ManualClock
from tests.unit.spool.moody import Disk, Moody, spool

# --- a bandit in front of it -------------------------------------------------------------------

OFFER = np.eye(3)


def bandit_on(moody: Moody, disk: Disk, window: int = 10**12) -> Bandit:
    """A bandit whose journal can go away."""
    return Bandit(
        policy=DelayedUCB(3, Bernoulli()),
        rewards=Explicit(timedelta(microseconds=window)),
        journal=spool(moody, disk),
        clock=moody._clock,
        seed=0,
    )


def information(bandit: Bandit) -> Matrix:
    """What is pending, as its learner has it."""
    learner = bandit._fold.learner
    learner.fit()
    return learner.weighting.pending.matrix + learner.weighting.held.matrix


@pytest.mark.parametrize("partitions", [1, 4])
def test_bandit_continues_while_journal_is_unavailable(disk: Disk, partitions: int) -> None:
    """It decides, takes rewards, counts what is out; and afterwards knows what a replay knows."""
    moody = Moody(partitions=partitions, clock=ManualClock(1000))
    bandit = bandit_on(moody, disk)
    before = bandit.decide(rows=OFFER)
    moody.away = True
    one = bandit.decide(rows=OFFER, id="one")
    many = bandit.decide_many(rows=[OFFER, OFFER])
    assert bandit.observe(before.id, 1.0).status == "accepted"
    assert bandit.observe(one.id, 0.0).status == "accepted"
    assert bandit.void(many[0].id).status == "accepted"
    dormant = bandit.decide(rows=OFFER, id="dormant", activated=False)
    assert bandit.decide(rows=OFFER, id="dormant", activated=False) is dormant
    assert bandit.pending.count == 4  # it chooses as if it had folded them
    assert len({decision.index for decision in (before, one, *many)}) == 3
    assert bandit.decide(rows=OFFER, id="one") is one  # a retry
    with pytest.raises(InvalidInput, match="another decision"):
        bandit.decide(rows=-OFFER, id="one")
    with pytest.raises(JournalReadUnavailable):
        bandit.sync()
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    last = bandit.decide(rows=OFFER)
    bandit.sync()
    assert bandit.decision_counts == {
        "dormant": 1,
        "pending": 2,
        "rewarded": 2,
        "defaulted": 0,
        "censored": 0,
        "voided": 1,
    }
    assert {key for key, _ in bandit.pending} == {many[1].id, last.id}
    assert bandit.pending.count == 2
    replayed = bandit.as_of("9999-12-31T00:00Z")
    assert (bandit.digest, bandit.event_counts) == (replayed.digest, replayed.event_counts)
    np.testing.assert_allclose(information(bandit), information(replayed), atol=1e-12)
    assert bandit.decide(rows=OFFER, id="one") == one


def test_a_bandit_learns_what_waited_as_it_arrives(moody: Moody, disk: Disk) -> None:
    """Also if it makes no call of its own in between: nothing is counted twice."""
    bandit = bandit_on(moody, disk)
    moody.away = True
    first = bandit.decide(rows=OFFER)
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    bandit.sync()
    assert (bandit.pending.count, bandit.decision_counts["pending"]) == (1, 1)
    assert bandit.observe(first.id, 1.0).status == "rewarded"
    assert bandit.pending.count == 0


def test_no_caller_folds_a_whole_outage(disk: Disk) -> None:
    """After it each call folds a part, until nothing is left; all is as in a replay then."""
    moody = Moody(partitions=2, clock=ManualClock(1000))
    bandit = bandit_on(moody, disk)
    moody.away = True
    made = bandit.decide_many(rows=[OFFER] * 1200)
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    statuses = [bandit.observe(decision.id, 1.0).status for decision in made[:3]]
    assert statuses == ["accepted", "accepted", "rewarded"]
    bandit.sync()
    assert bandit.decision_counts["rewarded"] == 3
    assert bandit.pending.count == bandit.decision_counts["pending"] == 1197
    assert bandit.digest == bandit.as_of("9999-12-31T00:00Z").digest
    np.testing.assert_allclose(
        information(bandit), information(bandit.as_of("9999-12-31T00:00Z")), atol=1e-9
    )


def test_bandit_settles_nothing_while_journal_is_unavailable(moody: Moody, disk: Disk) -> None:
    """Journal time stands still there; it goes on with the journal."""
    clock = moody._clock
    assert isinstance(clock, ManualClock)
    bandit = bandit_on(moody, disk, window=100)
    early = bandit.decide(rows=OFFER)
    moody.away = True
    bandit.decide(rows=OFFER)
    clock.now += 1000
    for _ in range(5):
        bandit.decide(rows=OFFER)
    assert isinstance(bandit.journal, SpoolJournal)
    assert bandit.journal.status.queued == 6
    moody.away = False
    bandit.journal.forward()
    bandit.decide(rows=OFFER)
    bandit.decide(rows=OFFER)
    assert bandit.entry(early.id).state == "censored"


def test_a_journal_that_fails_after_it_took_an_event(moody: Moody, disk: Disk) -> None:
    """The event is safe, so the call succeeds; its meaning is learned later."""
    bandit = bandit_on(moody, disk)
    append = moody.append

    def last(
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        try:
            return append(events, recorded=recorded)
        finally:
            moody.away = True

    moody.append = last  # type: ignore[method-assign]
    decision = bandit.decide(rows=OFFER)
    assert bandit.pending.count == 1
    moody.append = append  # type: ignore[method-assign]
    moody.away = False
    assert isinstance(bandit.journal, SpoolJournal)
    bandit.journal.forward()
    assert bandit.observe(decision.id, 1.0).status == "rewarded"
    assert bandit.pending.count == 0


def test_bandit_can_be_closed_while_journal_is_unavailable(moody: Moody, disk: Disk) -> None:
    """There is no snapshot, which is said; what waits stays."""
    bandit = bandit_on(moody, disk)
    moody.away = True
    bandit.decide(rows=OFFER)
    with pytest.warns(SnapshotWarning, match="down"):
        bandit.close()
    assert disk.closed
    assert spool(Moody(clock=ManualClock(1000)), Disk(bytes(disk.data))).status.forwarded == 1
