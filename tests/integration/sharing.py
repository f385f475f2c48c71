"""Tests of journals that are used concurrently, by threads and by processes with bandits."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.core.events import Void
from belated.journals import Journal, PostgresJournal, SQLiteJournal

UCB = DelayedUCB(3, Bernoulli())
EVER = Explicit()

#: Decides, tells the others its ids through a folder, and observes what it finds there: rewards of
#: others, out of order and twice. In the end everyone waits for everyone, and says what it knows.
PLAY = """
import json, random, sys, time
from pathlib import Path
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit, journals
from belated.model import kernels

kind, place, name, folder, me, others, rounds, partitions = sys.argv[1:]
me, others, rounds = int(me), int(others), int(rounds)
folder, rng, rows = Path(folder), random.Random(me), np.random.default_rng(me)

def meet(name):
    (folder / f"{name} {me}").touch()
    while len(list(folder.glob(f"{name} *"))) < others:
        time.sleep(0.01)

bandit = Bandit(
    policy=DelayedUCB(3, Bernoulli()),
    rewards=Explicit(),
    journal=getattr(journals, kind)(place, bandit=name, partitions=int(partitions), wait=60),
    seed=me,
    kernels=kernels.plain(),  # compiled ones take a while to load
)
meet("open")
waiting = []
for n in range(rounds):
    made = bandit.decide(rows=rows.normal(size=(4, 3)))
    many = bandit.decide_many(rows=list(rows.normal(size=(2, 4, 3)))) if n % 10 == 0 else []
    shared = bandit.decide(rows=np.eye(3), id=f"shared {n}")  # everyone decides this one
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
    "counts": bandit.decision_counts,
    "counters": bandit.event_counts,
    "pending": sorted(key for key, _ in bandit.pending),
    "n": bandit.estimate.n,
    "theta": bandit.estimate.theta.tolist(),
}))
bandit.close()
"""


def assert_threads_may_share(journal: Journal) -> None:
    """Assert that four threads can append and read at once: no event is lost or duplicated."""

    def work(name: int) -> None:
        for n in range(25):
            journal.append([Void(f"{name}", n)])
            journal.read(0, 0, 10)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = journal.read(0, 0, 1000)
    assert [record.position for record in records] == list(range(1, 101))
    assert len({record.event for record in records}) == 100


def assert_processes_agree(
    kind: type[SQLiteJournal | PostgresJournal],
    place: object,
    name: str,
    folder: Path,
    *,
    players: int,
    partitions: int,
    rounds: int,
) -> None:
    """Run processes, and compare their results with each other and with the journal.

    Args:
        kind: the kind of the shared journal, which is new.
        place: the location of the journal.
        name: of the bandit.
        folder: the folder through which the processes communicate.
        players: the number of processes.
        partitions: of the journal.
        rounds: the number of rounds per process.
    """
    folder.mkdir()
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", PLAY, kind.__name__, str(place), name, folder),
                *map(str, (player, players, rounds, partitions)),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for player in range(players)
    ]
    results = []
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        results.append(json.loads(out))
    with Bandit(policy=UCB, rewards=EVER, journal=kind(str(place), bandit=name)) as reopened:
        view = reopened.as_of("9999-12-31T00:00Z")  # from the beginning, without a snapshot
        for bandit in (reopened, view):
            results.append(
                {
                    "digest": bandit.digest,
                    "counts": bandit.decision_counts,
                    "counters": bandit.event_counts,
                    "pending": sorted(key for key, _ in bandit.pending),
                    "n": bandit.estimate.n,
                    "theta": bandit.estimate.theta.tolist(),
                }
            )
    thetas = [result.pop("theta") for result in results]
    assert all(result == results[0] for result in results)
    for theta in thetas:
        np.testing.assert_allclose(theta, thetas[0], rtol=1e-8, atol=1e-8)
    # Everyone decided: its own, two more every tenth round, and the shared ones, which are one.
    decisions = players * (rounds + 2 * len(range(0, rounds, 10))) + rounds
    assert sum(results[0]["counts"].values()) == decisions
    assert results[0]["n"] == results[0]["counts"]["rewarded"] > rounds


def assert_opened_where_it_was_left(open_journal: Callable[[], Journal]) -> None:
    """Decisions of one process are rewarded in another, by snapshot or by records alone."""
    digest = ""
    ids: list[str] = []
    for n in range(4):
        bandit = Bandit(policy=UCB, rewards=EVER, journal=open_journal())
        assert digest in ("", bandit.digest)
        for id in ids:
            assert bandit.observe(id, 1.0).status == "rewarded"
        ids = [bandit.decide(rows=np.eye(3)).id for _ in range(3)]
        digest = bandit.digest
        if n % 2:
            bandit.close()
        else:
            bandit.journal.close()  # as a process that ends does
    with Bandit(policy=UCB, rewards=EVER, journal=open_journal()) as reopened:
        assert reopened.digest == digest
        assert (reopened.decision_counts["rewarded"], reopened.decision_counts["pending"]) == (9, 3)
