"""The real library under simulated faults: 0 disagreements, and every planted bug is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from belated.exceptions import OwnerFenced
from belated.journals import Journal
from belated.journals.snapshots import Snapshot
from belated.testing import JournalContract, ManualClock
from tests.shelf_contract import ShelfContract
from tests.simulator.__main__ import main
from tests.simulator.faults import FAULTS, Faults
from tests.simulator.planted import FOUND_BY, PLANTS, Plant
from tests.simulator.runs import run, sweep
from tests.simulator.store import SimulatedJournal, Store

KEPT = Path(__file__).with_name("seeds.txt")
#: Within so many seeds a bug must be found.
PATIENCE = 200


def kept_seeds() -> list[int]:
    """The seeds that have failed once."""
    lines = [line.split("#")[0].strip() for line in KEPT.read_text(encoding="utf-8").splitlines()]
    return [int(line) for line in lines if line]


@pytest.mark.parametrize("seed", kept_seeds())
def test_what_failed_once_holds(seed: int) -> None:
    """Every seed that was ever found to fail."""
    run(seed)


def test_laws_hold_under_every_fault(full: bool) -> None:
    """H, X, C and L hold in every run, and no fault is missing from the runs."""
    result = sweep(range(10_000 if full else 200), jobs=2)
    assert not result.failures, "\n".join(result.failures.values())
    assert not result.never


def test_a_run_is_its_seed(full: bool) -> None:
    """Line by line the same in processes that hash text in different ways."""
    seeds = [str(seed) for seed in range(1000, 1020 if full else 1010)]
    command = [sys.executable, "-m", "tests.simulator", "--brief", *seeds]
    outputs = [
        subprocess.run(
            command,
            cwd=KEPT.parents[2],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hashing in ("1", "2")
    ]
    assert outputs[0].count("trace") == len(seeds)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 200 seeds: those of the real library all hold, see above."""
    plant(monkeypatch)
    seeds = [FOUND_BY.get(plant, 0), *range(PATIENCE)]
    assert any(sweep([seed]).failures for seed in seeds)


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command stands with the seed; the same command then fails too."""
    monkeypatch.setattr(Store, "last_stamp", lambda self, partition: 1 / 0)
    result = sweep([3])
    assert result.failures[3].endswith("python -m tests.simulator 3")
    with pytest.raises(ZeroDivisionError):
        main(["3", "--brief"])


def test_the_command_prints_what_happened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run line by line; many with a table of all faults; how far it is, on a terminal."""
    assert main(["5"]) == 0
    printed = capsys.readouterr().out
    assert "all agree on" in printed
    assert printed.splitlines()[-1].startswith("seed 5: trace ")
    main(["--seeds", "4", "--first", "5"])
    output = capsys.readouterr()
    assert all(name in output.out for name in FAULTS)
    assert output.err == ""  # a log is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    main(["--seeds", "4", "--first", "5"])
    assert "4 of 4 seeds, 0 failed, 0 s left" in capsys.readouterr().err


class TestSimulatedJournal(JournalContract, ShelfContract):
    """The simulated journal, while nothing fails, is a journal like any other."""

    def open_journal(self, partitions: int, clock: ManualClock) -> SimulatedJournal:
        """A session with a store of its own."""
        faults = Faults(seed=0)
        faults.stop()
        return SimulatedJournal(Store(partitions, clock, faults), faults)

    def reopen(self, journal: Journal, clock: ManualClock) -> Journal:
        """Another session."""
        assert isinstance(journal, SimulatedJournal)
        return SimulatedJournal(journal._store, journal._faults)

    def test_an_owner_who_was_superseded_cannot_save(self) -> None:
        """Until it acquires the partition anew."""
        clock = ManualClock()
        with self.open_journal(1, clock) as owner, self.reopen(owner, clock) as rival:
            assert isinstance(rival, SimulatedJournal)
            owner.acquire(0)
            rival.acquire(0)
            with pytest.raises(OwnerFenced):
                owner.save(Snapshot(0, 0, "v1", {"ledger": b"0"}))
            rival.save(Snapshot(0, 0, "v1", {"ledger": b"0"}))
            owner.acquire(0)
            owner.save(Snapshot(0, 0, "v1", {"ledger": b"1"}))
