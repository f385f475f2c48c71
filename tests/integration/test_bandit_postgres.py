"""One bandit in one database, in several processes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.journals import PostgresJournal

UCB = DelayedUCB(3, Bernoulli())
EVER = Explicit()


def play() -> str:
    """What the processes of test_bandit_sqlite.py do, with a journal in PostgreSQL."""
    path = Path(__file__).with_name("test_bandit_sqlite.py")
    spec = importlib.util.spec_from_file_location("test_bandit_sqlite", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    code: str = module.PLAY
    assert code.count('SQLiteJournal(path, bandit="offers", ') == 1
    return code.replace(
        'SQLiteJournal(path, bandit="offers", ', "PostgresJournal(path, bandit=folder.name, "
    ).replace("SQLiteJournal", "PostgresJournal")


def test_processes_that_share_a_bandit_agree(
    dsn: str, bandit: str, tmp_path: Path, full: bool
) -> None:
    """Two decide and observe at once, with duplicates and out of order: all know the same."""
    for partitions in (1, 4) if full else (4,):
        agree(dsn, tmp_path / f"{bandit}, {partitions} partitions", partitions, 200 if full else 12)


def agree(dsn: str, folder: Path, partitions: int, rounds: int) -> None:
    """Let them play, and compare what they say with each other and with the journal."""
    folder.mkdir()
    code = play()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, dsn, folder, f"{me}", "2", f"{rounds}", f"{partitions}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(2)
    ]
    told = []
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        told.append(json.loads(out))
    journal = PostgresJournal(dsn, bandit=folder.name)
    with Bandit(policy=UCB, rewards=EVER, journal=journal) as fresh:
        for known in (fresh, fresh.as_of(2**62)):  # by snapshot, and by all records
            told.append(
                {
                    "digest": known.digest,
                    "counts": known.counts,
                    "counters": known.counters,
                    "pending": [list(one) for one in sorted(known.pending)],
                    "n": known.estimate.n,
                    "theta": known.estimate.theta.tolist(),
                }
            )
    thetas = [one.pop("theta") for one in told]
    assert all(one == told[0] for one in told)
    for theta in thetas:
        np.testing.assert_allclose(theta, thetas[0], rtol=1e-8, atol=1e-8)
    # Everyone decided: its own, two more every tenth round, and the shared ones, which are one.
    decisions = 2 * (rounds + 2 * len(range(0, rounds, 10))) + rounds
    assert sum(told[0]["counts"].values()) == decisions
    assert told[0]["n"] == told[0]["counts"]["rewarded"] > rounds


def test_a_bandit_is_opened_where_it_was_left(dsn: str, bandit: str) -> None:
    """Decisions of one process are rewarded in another, by snapshot or by records alone."""
    digest = ""
    ids: list[str] = []
    for n in range(4):
        journal = PostgresJournal(dsn, bandit=bandit, partitions=2)
        one = Bandit(policy=UCB, rewards=EVER, journal=journal)
        assert digest in ("", one.digest)
        for id in ids:
            assert one.observe(id, 1.0).status == "rewarded"
        ids = [one.decide(np.eye(3)).id for _ in range(3)]
        digest = one.digest
        if n % 2:
            one.close()
        else:
            journal.close()  # as a process that ends does
    journal = PostgresJournal(dsn, bandit=bandit)
    with Bandit(policy=UCB, rewards=EVER, journal=journal) as last:
        assert last.digest == digest
        assert (last.counts["rewarded"], last.counts["pending"]) == (9, 3)
