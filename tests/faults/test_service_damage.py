"""Bits that flip in the database of a service: in a snapshot, and in a record."""

from __future__ import annotations

from contextlib import closing

from belated.fold.published import PublishedModel
from belated.journals import open_store
from tests.faults.service_load import Load
from tests.faults.town import Cluster, assert_nothing_lost
from tests.integration.damage import flip
from tests.integration.processes import later


def test_flipped_bits(town: Cluster) -> None:
    """A snapshot is discarded and made anew. A record stops the learner there, and nothing else."""
    with Load(town.port) as load:
        later(lambda: len(load.answers) > 50)
        town.stop_learner()
        count = len(town.records()[0])
        later(lambda: len(town.records()[0]) > count + 50)  # that no learner has seen
        flip(town.server.dsn, "value", "starts_with(name, 'snapshot-piece/') AND length(value) > 0")
        target = town.server.dsn, "event", "partition = 0 AND position = %s", count + 20
        flip(*target)
        town.learner = town.start("learn")
        later(lambda: town.learner.mentions("SnapshotWarning"))
        later(lambda: town.learner.mentions(f"partition 0, position {count + 20} "))
        with closing(open_store(town.server.dsn).coordination("offers")) as coordination:
            publication = coordination.published()
        assert publication is not None
        assert PublishedModel.read(publication[1]).positions[0] < count + 20
        assert town.decider.decide()
        flip(*target)  # as if from a backup
    assert_nothing_lost(town, load)
    assert load.share(60.0) >= 0.999
