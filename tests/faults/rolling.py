"""A rolling upgrade as in the guide, and proof that nothing was lost or counted twice."""

from __future__ import annotations

import json
import time

from belated import Bernoulli, DelayedUCB, Explicit
from belated.core.events import Decision, Opaque, Record, Reward
from belated.fold.fold import Fold
from belated.journals import PostgresJournal
from tests.faults.balancer import Balanced
from tests.faults.fleet import Fleet
from tests.faults.releases import NOTE, SAVED, Release, present


def upgrade(fleet: Fleet, dsn: str, new: Release) -> None:
    """Upgrade the learner, then the deciders one by one, then use the new features."""
    fleet.replace_learner(new)
    fleet.replace_deciders(new)
    use_what_is_new(new, dsn, fleet)


def go_back(fleet: Fleet, old: Release) -> None:
    """Downgrade the deciders one by one, then the learner; the tables stay."""
    fleet.replace_deciders(old)
    fleet.replace_learner(old)
    time.sleep(1)


def use_what_is_new(release: Release, dsn: str, fleet: Fleet) -> None:
    """Use a table, or a kind of event, that the previous release does not know."""
    name = f"made at {time.time_ns()}"
    if release == present():
        options = ("--bandit", "offers", "--scope", "read", "--config", str(fleet.file))
        release.run("-m", "belated", "keys", "create", name, *options)
    else:
        release.run("-c", NOTE, dsn, "offers", name)


def knows_all(fleet: Fleet, load: Balanced, dsn: str) -> bool:
    """Return whether spools are delivered, and the learner has folded everything acknowledged."""
    records = read(dsn)
    if load.lost(record.event for page in records for record in page):
        return False
    return bool(fleet.deciders[0].state()["version"] == sum(map(len, records)))


def check(dsn: str, load: Balanced, last: Release) -> None:
    """Check that no request failed, nothing is lost, and the model equals a fold of all records."""
    print(
        f"\n{len(load.answers)} requests, {len(load.failed)} failed, {load.taken_out} times a "
        f"decider was taken out, {load.refused} connections refused, "
        f"worst {max(answer.seconds for answer in load.answers):.3f} s"
    )
    assert load.failed == []
    records = read(dsn)
    events = [record.event for page in records for record in page]
    assert not load.lost(events)
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit(), partitions=len(records))
    for partition, page in enumerate(records):
        fold.take_all(
            partition, [record for record in page if not isinstance(record.event, Opaque)]
        )
    snapshot = json.loads(last.run("-c", SAVED, dsn, "offers"))
    assert snapshot["positions"] == [page[-1].position for page in records]
    assert snapshot["digest"] == fold.digest
    # Each counts once, however often it was sent and folded.
    assert sum(fold.counts.values()) == len({e.id for e in events if isinstance(e, Decision)})
    rewarded_ids = {e.id for e in events if isinstance(e, Reward)}
    assert snapshot["n"] == fold.model.n == fold.counts["rewarded"] == len(rewarded_ids)


def read(dsn: str) -> list[list[Record]]:
    """Return all records, by partition."""
    with PostgresJournal(dsn, bandit="offers") as journal:
        return [journal.read(p, 0, 10_000_000) for p in range(journal.partitions)]
