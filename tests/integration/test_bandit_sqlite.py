"""One bandit on one file, in several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedUCB, Explicit, statistics
from belated.journals import SQLiteJournal
from belated.rewards import Rewards
from belated.testing import ManualClock

UCB = DelayedUCB(3, Bernoulli())
EVER = Explicit()

#: Decides, tells the others its ids through a folder, and observes what it finds there: rewards of
#: others, out of order and twice. In the end everyone waits for everyone, and says what it knows.
PLAY = """
import json, random, sys, time
from pathlib import Path
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit, kernels
from belated.journals import SQLiteJournal

path, folder, me, others, rounds, partitions = sys.argv[1:]
me, others, rounds = int(me), int(others), int(rounds)
folder, rng, rows = Path(folder), random.Random(me), np.random.default_rng(me)

def meet(name):
    (folder / f"{name} {me}").touch()
    while len(list(folder.glob(f"{name} *"))) < others:
        time.sleep(0.01)

bandit = Bandit(
    policy=DelayedUCB(3, Bernoulli()),
    rewards=Explicit(),
    journal=SQLiteJournal(path, bandit="offers", partitions=int(partitions), wait=60),
    seed=me,
    using=kernels.plain(),  # compiled ones take a while to load
)
meet("open")
waiting = []
for n in range(rounds):
    made = bandit.decide(rows.normal(size=(4, 3)))
    many = bandit.decide_many(list(rows.normal(size=(2, 4, 3)))) if n % 10 == 0 else []
    shared = bandit.decide(np.eye(3), id=f"shared {n}")  # everyone decides this one
    waiting += [made.id, *(one.id for one in many), shared.id]
    if n % 3 == 0:  # others report it
        place = folder / f"told {me} {n}.part"
        place.write_text(json.dumps([made.id]))
        place.rename(place.with_suffix(".json"))
        waiting.remove(made.id)
    for place in folder.glob("told *.json"):
        if rng.random() < 0.3:
            waiting += json.loads(place.read_text())
    rng.shuffle(waiting)
    for id in waiting[: len(waiting) // 2]:
        # The value is a function of the id: whoever reports it says the same.
        bandit.observe(id, float(sum(id.encode()) % 2))
        if rng.random() < 0.2:
            bandit.observe(id, float(sum(id.encode()) % 2))
    del waiting[: len(waiting) // 2]
    if n % 17 == me:
        bandit.save()
meet("done")
bandit.sync()
meet("synced")
print(json.dumps({
    "digest": bandit.digest,
    "counts": bandit.counts,
    "counters": bandit.counters,
    "pending": sorted(bandit.pending),
    "n": bandit.estimate.n,
    "theta": bandit.estimate.theta.tolist(),
}))
bandit.close()
"""


def test_processes_that_share_a_bandit_agree(tmp_path: Path, full: bool) -> None:
    """Three decide and observe at once, with duplicates and out of order: all know the same."""
    for partitions in (1, 4) if full else (1,):
        folder = tmp_path / f"{partitions} partitions"
        folder.mkdir()
        play(folder, partitions, 200 if full else 12)


def play(folder: Path, partitions: int, rounds: int) -> None:
    """Let them play, and compare what they say with each other and with the file."""
    path = folder / "offers.db"
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                PLAY,
                path,
                folder,
                str(me),
                "3",
                str(rounds),
                str(partitions),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in range(3)
    ]
    told = []
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        told.append(json.loads(out))
    with Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="offers")) as fresh:
        past = fresh.as_of(2**62)  # from the beginning, without a snapshot
        for bandit in (fresh, past):
            told.append(
                {
                    "digest": bandit.digest,
                    "counts": bandit.counts,
                    "counters": bandit.counters,
                    "pending": [list(one) for one in sorted(bandit.pending)],
                    "n": bandit.estimate.n,
                    "theta": bandit.estimate.theta.tolist(),
                }
            )
    thetas = [one.pop("theta") for one in told]
    assert all(one == told[0] for one in told)
    for theta in thetas:
        np.testing.assert_allclose(theta, thetas[0], rtol=1e-8, atol=1e-8)
    # Everyone decided: its own, two more every tenth round, and the shared ones, which are one.
    decisions = 3 * (rounds + 2 * len(range(0, rounds, 10))) + rounds
    assert sum(told[0]["counts"].values()) == decisions
    assert told[0]["n"] == told[0]["counts"]["rewarded"] > rounds


def test_a_file_is_opened_where_it_was_left(tmp_path: Path) -> None:
    """Decisions of one process are rewarded in another, by snapshot or by records alone."""
    path = tmp_path / "offers.db"
    digest = ""
    ids: list[str] = []
    for n in range(4):
        bandit = Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="offers"))
        assert digest in ("", bandit.digest)
        for id in ids:
            assert bandit.observe(id, 1.0).status == "rewarded"
        ids = [bandit.decide(np.eye(3)).id for _ in range(3)]
        digest = bandit.digest
        if n % 2:
            bandit.close()
        else:
            bandit.journal.close()  # as a process that ends does
    with Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="offers")) as last:
        assert last.digest == digest
        assert (last.counts["rewarded"], last.counts["pending"]) == (9, 3)


def test_bandits_in_one_file_know_nothing_of_each_other(tmp_path: Path) -> None:
    """Neither events nor snapshots nor identities."""
    path = tmp_path / "offers.db"
    with (
        Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="one")) as one,
        Bandit(
            policy=DelayedUCB(2, Bernoulli()),
            rewards=EVER,
            journal=SQLiteJournal(path, bandit="other", partitions=4),
        ) as other,
    ):
        one.observe(one.decide(np.eye(3), id="a").id, 1.0)
        assert other.observe("a", 1.0).status == "parked"
        one.save()
        other.save()
    with Bandit(policy=UCB, rewards=EVER, journal=SQLiteJournal(path, bandit="one")) as again:
        assert again.counts == one.counts
        assert again.digest == one.digest


def test_snapshots_of_other_semantics_do_not_mix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that disagree about silence save in turn: each finds its own, or starts anew."""
    # Full blocks of rows are stored once and then kept; here they are full with four rows. (What
    # is learned is never revised here: handles keep their 16 bits.)
    monkeypatch.setattr(statistics, "BLOCK", 4)
    path, clock = tmp_path / "offers.db", ManualClock()
    hour = timedelta(hours=1)

    def opened(rewards: Rewards) -> Bandit:
        journal = SQLiteJournal(path, bandit="offers", clock=clock)
        return Bandit(policy=UCB, rewards=rewards, journal=journal, clock=clock, seed=1)

    both = [opened(Explicit(hour)), opened(DefaultAfter(hour))]
    rng = np.random.default_rng(0)
    for n in range(40):
        decision = both[n % 2].decide(rng.normal(size=(4, 3)))
        if n % 3 == 0:
            both[n % 2].observe(decision.id, float(n % 2))
        clock.now += 3_600_000_000 // 3
        for bandit in both:
            bandit.sync()
            bandit.save()
    for bandit in both:
        fresh, past = opened(bandit.rewards), bandit.as_of(2**62)
        assert fresh.digest == bandit.digest == past.digest
        assert fresh.estimate.n == bandit.estimate.n == past.estimate.n > 8
        np.testing.assert_allclose(fresh.estimate.theta, past.estimate.theta, atol=1e-8)
        fresh.journal.close()
        bandit.close()
