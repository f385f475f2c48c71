"""Learners that share a bandit on Kafka: killed, stopped, cut off and doubled, under load."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.faults.kafka_town import KafkaTown
from tests.integration.kafka_server import require_jars
from tests.integration.postgres_server import require_programs

#: Seconds in which all must be folded again, once a learner has died.
AGAIN = 10.0


@pytest.fixture
def town(tmp_path: Path, full: bool) -> Iterator[KafkaTown]:
    """Two learners on one broker; at full size three on three."""
    require_jars()
    require_programs()
    seed = random.SystemRandom().randrange(10**6) if full else 7
    brokers, session = (3, 6.0) if full else (1, 2.0)
    made = KafkaTown(tmp_path, brokers=brokers, session=session, full=full, seed=seed, learners=2)
    try:
        yield made
    finally:
        made.close()


def test_nothing_is_lost_and_nothing_counts_twice(town: KafkaTown, full: bool) -> None:
    """Whatever dies: what was acknowledged is learned once, as the generator says, to 1e-9."""
    faults: dict[str, Callable[[], float]] = {
        "worker": town.kill_worker,
        "merger": town.kill_merger,
        "producer": town.kill_producer,
        "stopped worker": town.stop_worker,
        "two owners": town.two_owners,
        "all brokers": town.kill_brokers,
        "database": partial(town.kill_database, 60.0 if full else 2.0),
        "cut link": partial(town.cut_link, 20.0 if full else 2.0),
    }
    if full:
        faults["broker"] = town.kill_broker
    names = list(faults) * (10 if full else 1)
    town.rng.shuffle(names)
    print(f"\nseed {town.seed}")
    waits = calm(town, 60.0 if full else 3.0)
    print(f"nothing fails: learned after p50 {waits[0]:.3f} s, p99 {waits[1]:.3f} s")
    for name in names:
        town.generate()
        time.sleep(town.rng.uniform(0.5, 3.0))
        since = faults[name]()
        took = town.recovery(since)
        took -= town.standstill.within(since, since + took)
        print(f"{name}: learned again after {took:.1f} s; {town.check()}", flush=True)
        if name in ("worker", "merger", "stopped worker", "producer"):
            assert took <= AGAIN
    assert town.lost() > 0  # or nobody was ever fenced


def calm(town: KafkaTown, seconds: float) -> tuple[float, float]:
    """Median and 99th percentile of the time from commit to model, while nothing fails."""
    town.generate()
    time.sleep(3.0)
    since = time.monotonic()
    time.sleep(seconds)
    until = time.monotonic()
    print(town.check())
    waits = town.waits(since, until)
    return float(np.median(waits)), float(np.quantile(waits, 0.99))
