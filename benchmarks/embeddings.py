"""Measure `PerArm` with embeddings: a decision, a reward and memory; and those of bayesianbandits.

The context is a vector of normals; each action has a θ of its own; rewards of 0 and 1 come 50
decisions late. Times are in ms: CPU time of the calling thread, the time that passed ("wall"), and
the CPU time of all other threads for each round ("threads"), which make fits. Memory is the peak of
the process. Each size runs in a process of its own. With ``--peer`` an interpreter that has
bayesianbandits (its version is in experiments/peers/requirements) plays the same rounds, one
learner for each action, as experiments/peers does. A size such as 2000x1 is a single block; with
``--inline`` a bandit that fits in the caller's thread plays the same rounds.

Run: python benchmarks/embeddings.py [--sizes 384x10 2000x1] [--rounds 4000] [--inline]
     [--peer PYTHON]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

#: Decisions by which a reward is late.
DELAY = 50
SIZES = ("384x5", "384x10", "384x50", "384x200", "768x10")


def play(
    size: str, rounds: int, decide: Callable[..., Any], observe: Callable[..., object]
) -> dict[str, float]:
    """Play rounds, and return what they took and cost."""
    width, actions = map(int, size.split("x"))
    rng = np.random.default_rng(7)
    thetas = 4.0 * rng.normal(size=(actions, width)) / np.sqrt(width)
    waiting: deque[tuple[Any, float]] = deque()
    decided, observed, regret = [], [], 0.0
    others = time.process_time() - time.thread_time()
    for _ in range(rounds):
        context = rng.normal(size=width) / np.sqrt(width)
        means = 1.0 / (1.0 + np.exp(-np.sqrt(width) * (thetas @ context)))
        begin = time.thread_time(), time.perf_counter()
        handle, chosen = decide(context)
        decided.append((time.thread_time() - begin[0], time.perf_counter() - begin[1]))
        regret += means.max() - means[chosen]
        waiting.append((handle, float(rng.random() < means[chosen])))
        if len(waiting) > DELAY:
            begin = time.thread_time(), time.perf_counter()
            observe(*waiting.popleft())
            observed.append((time.thread_time() - begin[0], time.perf_counter() - begin[1]))
    found = {
        "regret": float(regret),
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    others = time.process_time() - time.thread_time() - others
    for name, seconds in (("decide", decided), ("observe", observed)):
        cpu, wall = np.array(seconds).T
        found[name] = 1e3 * float(cpu.mean())
        found[f"{name} p99"] = 1e3 * float(np.quantile(cpu, 0.99))
        found[f"{name} p99 wall"] = 1e3 * float(np.quantile(wall, 0.99))
        found[f"{name} max wall"] = 1e3 * float(wall.max())
    found["threads"] = 1e3 * others / rounds
    return found


def belated(size: str, rounds: int, *, background: bool = True) -> dict[str, float]:
    """Play with the policy and the rewards that README recommends for embeddings."""
    from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
    from belated.model.kernels import complete, plain

    while complete() is plain():  # compiled kernels arrive in the background
        time.sleep(0.1)
    width, actions = map(int, size.split("x"))
    names = [f"action {k}" for k in range(actions)]
    features = PerArm(names, context=width)
    policy, rewards = DelayedUCB(features.dim, Bernoulli()), Explicit()
    bandit = Bandit(policy=policy, rewards=rewards, features=features, background_fits=background)

    def decide(context: np.ndarray) -> tuple[str, int]:
        decision = bandit.decide(context, names)
        return decision.id, decision.index

    return play(size, rounds, decide, bandit.observe)


def inline(size: str, rounds: int) -> dict[str, float]:
    """Play with fits in the calls that find them due."""
    return belated(size, rounds, background=False)


def bayesianbandits(size: str, rounds: int) -> dict[str, float]:
    """Play with Thompson sampling, a learner for each action."""
    from bayesianbandits import BayesianGLM  # type: ignore[import-not-found]

    rng = np.random.default_rng(1)
    learners = [
        BayesianGLM(alpha=1.0, link="logit", random_state=rng)
        for _ in range(int(size.split("x")[1]))
    ]

    def decide(context: np.ndarray) -> tuple[tuple[int, np.ndarray], int]:
        offer = context[None]
        chosen = int(np.argmax([learner.sample(offer) for learner in learners]))
        return (chosen, offer), chosen

    def observe(handle: tuple[int, np.ndarray], reward: float) -> None:
        chosen, offer = handle
        learners[chosen].partial_fit(offer, np.array([reward]))

    return play(size, rounds, decide, observe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="width x actions")
    parser.add_argument("--rounds", type=int, default=4_000)
    parser.add_argument("--peer", help="an interpreter that has bayesianbandits")
    parser.add_argument("--inline", action="store_true", help="play without background fits too")
    parser.add_argument(
        "--one", choices=("belated", "inline", "bayesianbandits"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.one:
        played = globals()[arguments.one](arguments.sizes[0], arguments.rounds)
        json.dump(played, sys.stdout)
        return
    columns = [
        *("decide", "decide p99", "observe", "observe p99", "observe p99 wall"),
        *("observe max wall", "threads", "MB", "regret"),
    ]
    print(f"| size | library | {' | '.join(columns)} |")
    print(f"|---|---|{'--:|' * len(columns)}")
    libraries = {"belated": sys.executable}
    if arguments.inline:
        libraries["inline"] = sys.executable
    if arguments.peer:
        libraries["bayesianbandits"] = arguments.peer
    for size in arguments.sizes:
        for library, python in libraries.items():
            options = ["--sizes", size, "--rounds", str(arguments.rounds), "--one", library]
            ran = subprocess.run(
                [python, __file__, *options], stdout=subprocess.PIPE, text=True, check=True
            )
            found = json.loads(ran.stdout)
            cells = (f"{found[name]:,.{0 if found[name] > 100 else 2}f}" for name in columns)
            print(f"| {size} | {library} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
