"""Learners that share partitions under simulated faults: 0 disagreements, planted bugs found."""

from __future__ import annotations

import pytest

from tests.simulator.__main__ import main
from tests.simulator.planted import FOUND_BY, SHARED_PLANTS, Plant
from tests.simulator.runs import run, sweep

#: Within so many seeds a bug must be found.
PATIENCE = 200


def test_laws_hold_under_every_fault(full: bool) -> None:
    """M, O and W hold in every run, beside the laws of any service."""
    seeds = range(10_000) if full else [*range(8), 26, 29, 50012, 50255]  # four that have failed
    result = sweep(seeds, jobs=2, shared=True)
    assert not result.failures, "\n".join(result.failures.values())
    if full:
        assert not result.never


def test_a_run_is_its_seed() -> None:
    """The same trace twice."""
    assert run(3, shared=True) == run(3, shared=True)


@pytest.mark.parametrize("plant", SHARED_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 200 seeds: those of the real library all hold, see above."""
    plant(monkeypatch)
    seeds = [FOUND_BY.get(plant, 0), *range(PATIENCE)]
    assert any(sweep([seed], shared=True).failures for seed in seeds)


def test_the_command_runs_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    """And a failure says how to repeat it."""
    assert main(["--shared", "--brief", "5"]) == 0
    assert capsys.readouterr().out.startswith("seed 5: trace ")


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the switch."""
    from tests.simulator.store import Store

    monkeypatch.setattr(Store, "last_stamp", lambda self, partition: 1 / 0)
    result = sweep([3], shared=True)
    assert result.failures[3].endswith("python -m tests.simulator --shared 3")
