"""The parts of the service under simulated faults: 0 disagreements, and planted bugs are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable

import pytest

from belated.published import PublishedModel
from belated.service.decider import Decider
from belated.testing.simulator.faults import STRIKES
from tests.faults.service_simulation import Board, ServiceJournal, simulate_service

Plant = Callable[[pytest.MonkeyPatch], None]
#: Within so many seeds a bug must be found.
PATIENCE = 200


def test_nothing_disagrees_and_every_fault_occurs(full: bool) -> None:
    """H, X, C and L hold in every run."""
    counts = Counter[str]()
    for seed in range(5_000 if full else 60):
        try:
            counts += simulate_service(seed).faults.counts
        except BaseException:
            print(f"repeat it with: python -m tests.faults.service_simulation {seed}")
            raise
    assert not set(STRIKES) - set(counts)
    assert counts["owner superseded"]


def test_a_run_is_its_seed() -> None:
    """Line by line the same in processes that hash text in different ways."""
    seeds = [str(seed) for seed in range(1000, 1005)]
    command = [sys.executable, "-m", "tests.faults.service_simulation", *seeds]
    started = [
        subprocess.Popen(
            command, env={**os.environ, "PYTHONHASHSEED": hashing}, stdout=subprocess.PIPE
        )
        for hashing in ("1", "2")
    ]
    one, other = (process.communicate()[0] for process in started)
    assert one.count(b"agree on") == 2 * len(seeds)
    assert one == other


def models_of_anyone(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the learner that pins up a model still leads."""
    patch.setattr(Board, "check_epoch", lambda self, epoch: None)


def own_decisions_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A model that comes replaces all that was counted here."""
    take = Decider.take

    def hasty(self: Decider, published: PublishedModel) -> None:
        self._own = OrderedDict()
        take(self, published)

    patch.setattr(Decider, "take", hasty)


def frozen_models_go_on(patch: pytest.MonkeyPatch) -> None:
    """The learner does not look at the switch."""
    patch.setattr(ServiceJournal, "mode", lambda self: None)


PLANTS: list[Plant] = [models_of_anyone, own_decisions_forgotten, frozen_models_go_on]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 200 seeds."""
    plant(monkeypatch)
    assert any(fails(seed) for seed in range(PATIENCE))


def fails(seed: int) -> bool:
    """Whether a law is broken."""
    try:
        simulate_service(seed)
    except AssertionError:
        return True
    return False
