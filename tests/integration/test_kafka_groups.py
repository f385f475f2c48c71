"""The partitions of workers, as a real Kafka assigns them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import chain

import pytest

from belated.exceptions import InvalidInput, JournalError
from belated.journals.coordination import Claim
from belated.journals.kafka.client import Cluster, Topics, new_name
from belated.journals.kafka.group import WorkerGroup
from tests.integration.kafka_server import KafkaCluster
from tests.waiting import eventually

PARTITIONS, SESSION = 4, 1.5
ALL = tuple(range(PARTITIONS))


@pytest.fixture
def workers(kafka: KafkaCluster) -> Iterator[list[WorkerGroup]]:
    """Three workers that share a topic, none of which has joined yet."""
    cluster = Cluster(kafka.address, {}, 10.0)
    topic = new_name("shared")
    Topics(cluster, 1).make(topic, PARTITIONS)
    with ExitStack() as stack:
        yield [stack.enter_context(closing(WorkerGroup(cluster, topic, SESSION))) for _ in range(3)]


def share(*workers: WorkerGroup) -> list[int]:
    """Let workers give back revoked partitions; return the number of partitions of each."""
    claims = [worker.claim() for worker in workers]
    for worker, claim in zip(workers, claims, strict=True):
        if claim.surplus:
            worker.give_back(claim.surplus)
    partitions = list(chain.from_iterable(claim.partitions for claim in claims))
    assert len(partitions) == len(set(partitions)), claims
    return [len(claim.partitions) for claim in claims]


def test_partitions_are_shared_and_come_back(workers: list[WorkerGroup]) -> None:
    """A partition never has two workers; one that leaves is replaced at once."""
    first, second, third = workers
    eventually(lambda: share(first) == [4])
    eventually(lambda: share(first, second) == [2, 2])
    eventually(lambda: sorted(share(first, second, third)) == [1, 1, 2])
    third.close()
    eventually(lambda: share(first, second) == [2, 2])
    first.close()
    eventually(lambda: share(second) == [4])


def test_what_the_brokers_want_back_is_held_until_it_is_given_back(
    workers: list[WorkerGroup],
) -> None:
    """Even for longer than a session: the worker saves it meanwhile."""
    first, second, _ = workers
    eventually(lambda: first.claim() == Claim(ALL))
    second.claim()
    eventually(lambda: len(first.claim().surplus) == 2)
    time.sleep(1.5 * SESSION)
    assert first.claim().partitions == ALL
    assert second.claim() == Claim(())
    surplus = first.claim().surplus
    first.give_back(surplus)
    eventually(lambda: second.claim().partitions == surplus)
    assert first.claim() == Claim(tuple(sorted({*ALL} - {*surplus})))


def test_a_partition_that_another_has_acquired_is_claimed_again_later(
    workers: list[WorkerGroup],
) -> None:
    """By then the brokers have confirmed the owner."""
    worker, *_ = workers
    eventually(lambda: worker.claim() == Claim(ALL))
    worker.doubt([1])
    assert worker.claim() == Claim((0, 2, 3))
    eventually(lambda: worker.claim() == Claim(ALL))


def test_a_session_that_the_brokers_do_not_allow_is_refused(kafka: KafkaCluster) -> None:
    """The error has the limit, and what to do."""
    worker = WorkerGroup(Cluster(kafka.address, {}, 10.0), "belated.none", 0.7)
    with pytest.raises(JournalError, match=r"session timeout of 0\.7 s: .*min.*lease_ttl"):
        worker.claim()


def test_the_protocol_of_groups_is_fixed() -> None:
    """With a group instance id, the brokers would fence a restarted worker."""
    with pytest.raises(InvalidInput, match=r"group\.instance\.id"):
        Cluster("k:9092", {"group.instance.id": "a"}, 10.0)
