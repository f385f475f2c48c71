"""CPU time of a round: choose one of K rows and learn one reward, in each library.

All rows share one θ; linear learners are told y - 1/2. Every entry starts from nothing and plays
the same number of rounds, several times over, so that what grows with the rewards seen is counted:
our fits over all observations too. Slices of all entries alternate, each in its own process with
one thread, and the figure is the median of the repeats. What a peer wants made of the rows (its
text, its dictionaries) is made outside the clock.

Ours are measured as compiled by numba and as plain NumPy; with the fits over all observations that
they make by default, and without them, where a reward is one rank-one step as it is for the peers;
and as users have them, a whole ``Bandit`` with its ids, journal and ledger, which no peer has.

Run: python experiments/peers/speed.py [--rounds 2000] [--repeats 5] [--output speed.md]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

from entries import ENTRIES, Settings, settings
from install import python_of
from problems import HERE
from tasks import ONE_THREAD
from tqdm import tqdm

SIZES = [(20, 10), (100, 100)]
SLICES = 10


class Worker:
    """An entry in its own process, waiting for orders."""

    def __init__(self, entry: str, settings: Settings, dim: int, arms: int) -> None:
        settings = dict(settings)
        task = {
            "peer": ENTRIES[entry].peer,
            "learner": settings.pop("learner", ENTRIES[entry].learner),
            "settings": settings,
            "dim": dim,
            "arms": arms,
        }
        self.process = subprocess.Popen(
            [python_of(ENTRIES[entry].peer), HERE / "slices.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD,
        )
        self._tell(json.dumps(task))

    def begin(self) -> None:
        self.play(0)

    def play(self, rounds: int) -> float:
        """The CPU seconds of a slice."""
        self._tell(str(rounds))
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        print(line, file=self.process.stdin, flush=True)


def variants() -> dict[str, tuple[str, Settings]]:
    """Every entry with the settings of ``ball``, and ours with either kind of kernels."""
    found = {}
    for name, entry in ENTRIES.items():
        chosen = settings(name, "ball")
        if entry.peer == "belated":
            for kernels in ("compiled", "plain"):
                found[f"{name}, {kernels}"] = (name, chosen | {"using": kernels})
                steps = chosen | {"using": kernels, "fits": False}
                found[f"{name}, {kernels}, no fits"] = (name, steps)
                whole = {"using": kernels, "learner": "Whole"}
                found[f"Bandit of {name}, {kernels}"] = (name, chosen | whole)
        else:
            found[name] = (name, chosen)
    return found


def measure(dim: int, arms: int, rounds: int, repeats: int) -> dict[str, float]:
    """µs per round, the median of the repeats."""
    workers = {name: Worker(*of, dim, arms) for name, of in variants().items()}
    for worker in workers.values():
        worker.begin()
        worker.play(20)  # imports and compiles
    times: dict[str, list[float]] = {name: [] for name in workers}
    for _ in tqdm(range(repeats), desc=f"d {dim}, K {arms}", unit="repeat"):
        for worker in workers.values():
            worker.begin()
        spent = dict.fromkeys(workers, 0.0)
        for _ in range(SLICES):
            for name, worker in workers.items():
                spent[name] += worker.play(rounds // SLICES)
        for name, seconds in spent.items():
            times[name].append(seconds / rounds * 1e6)
    for worker in workers.values():
        worker.end()
    return {name: statistics.median(of) for name, of in times.items()}


def report(sizes: dict[str, dict[str, float]], rounds: int) -> str:
    peers = [name for name, (entry, _) in variants().items() if ENTRIES[entry].peer != "belated"]
    lines = [f"CPU µs per round over the first {rounds:,} rounds", ""]
    lines += ["| | " + " | ".join(sizes) + " |", "|---|" + "--:|" * len(sizes)]
    for name in variants():
        lines.append(
            f"| {name} | " + " | ".join(f"{of[name]:,.1f}" for of in sizes.values()) + " |"
        )
    lines += ["", "How many times slower: the fastest peer, the median peer", ""]
    lines += ["| | " + " | ".join(sizes) + " |", "|---|" + "--:|" * len(sizes)]
    for name in [name for name in variants() if name not in peers]:
        cells = []
        for of in sizes.values():
            ratios = [of[peer] / of[name] for peer in peers]
            cells.append(f"{min(ratios):,.1f}, {statistics.median(ratios):,.1f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--output", type=Path, default=HERE / "speed.md")
    arguments = parser.parse_args()
    sizes = {
        f"d {dim}, K {arms}": measure(dim, arms, arguments.rounds, arguments.repeats)
        for dim, arms in SIZES
    }
    text = report(sizes, arguments.rounds)
    print(text)
    arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
