"""Measure `PerArm` with embeddings: a decision, a reward and memory; compare bayesianbandits.

The context is a vector of normals; each action has its own θ; rewards of 0 and 1 arrive 50
decisions late. First they are reported as README recommends, with ``ConversionsOnly``, where a
reward of 0 is never reported; then all of them, with ``Explicit``. Times are in ms: CPU time of the
calling thread, elapsed time ("wall"), and the CPU time of all other threads per round ("threads"),
which fit the model. Memory is the peak of the process. Each size runs in a separate process. With
``--peer``, a Python interpreter that has bayesianbandits (its version is in
experiments/benchmark/requirements) plays the same rounds, with one learner per action, as
experiments/benchmark does. A size such as 2000x1 is a single block; with ``--inline``, bandits that
fit in the caller's thread play the same rounds.

Run: python benchmarks/embeddings.py [--sizes 384x10 2000x1] [--rounds 4000] [--inline]
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
from functools import partial
from typing import Any

import numpy as np

#: Delay of rewards, in decisions.
DELAY = 50
SIZES = ("384x5", "384x10", "384x50", "384x200", "768x10")


def play(
    size: str,
    rounds: int,
    decide: Callable[..., Any],
    observe: Callable[..., object],
    *,
    silence: bool = False,
) -> dict[str, float]:
    """Play rounds and return their costs; with ``silence``, rewards of 0 are not reported."""
    width, actions = map(int, size.split("x"))
    rng = np.random.default_rng(7)
    thetas = 4.0 * rng.normal(size=(actions, width)) / np.sqrt(width)
    waiting: deque[tuple[Any, float]] = deque()
    decided, observed, regret = [], [], 0.0
    other_threads = time.process_time() - time.thread_time()
    for _ in range(rounds):
        context = rng.normal(size=width) / np.sqrt(width)
        means = 1.0 / (1.0 + np.exp(-np.sqrt(width) * (thetas @ context)))
        begin = time.thread_time(), time.perf_counter()
        handle, chosen = decide(context)
        decided.append((time.thread_time() - begin[0], time.perf_counter() - begin[1]))
        regret += means.max() - means[chosen]
        waiting.append((handle, float(rng.random() < means[chosen])))
        if len(waiting) > DELAY:
            handle, reward = waiting.popleft()
            if silence and not reward:
                continue
            begin = time.thread_time(), time.perf_counter()
            observe(handle, reward)
            observed.append((time.thread_time() - begin[0], time.perf_counter() - begin[1]))
    costs = {
        "regret": float(regret),
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    other_threads = time.process_time() - time.thread_time() - other_threads
    for name, seconds in (("decide", decided), ("observe", observed)):
        cpu, wall = np.array(seconds).T
        costs[name] = 1e3 * float(cpu.mean())
        costs[f"{name} p99"] = 1e3 * float(np.quantile(cpu, 0.99))
        costs[f"{name} p99 wall"] = 1e3 * float(np.quantile(wall, 0.99))
        costs[f"{name} max wall"] = 1e3 * float(wall.max())
    costs["threads"] = 1e3 * other_threads / rounds
    return costs


def belated(rewards: Any, size: str, rounds: int, background: bool = True) -> dict[str, float]:
    """Play with the default policy."""
    from belated import Bandit, ConversionsOnly, PerArm
    from belated.model.kernels import complete, plain

    while complete() is plain():  # compiled kernels arrive in the background
        time.sleep(0.1)
    width, actions = map(int, size.split("x"))
    names = [f"action {k}" for k in range(actions)]
    features = PerArm(names, context=width)
    bandit = Bandit(features, rewards=rewards, background_fits=background)

    def decide(context: np.ndarray) -> tuple[str, int]:
        decision = bandit.decide(context, names)
        return decision.id, decision.index

    silence = isinstance(rewards, ConversionsOnly)
    return play(size, rounds, decide, bandit.observe, silence=silence)


def conversions(size: str, rounds: int, *, background: bool = True) -> dict[str, float]:
    """Play as README recommends: only rewards of 1 are reported."""
    from belated import ConversionsOnly

    return belated(ConversionsOnly("7d"), size, rounds, background)


def explicit(size: str, rounds: int, *, background: bool = True) -> dict[str, float]:
    """Play with all rewards reported."""
    from belated import Explicit

    return belated(Explicit(), size, rounds, background)


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


PEER = "bayesianbandits"
PLAYERS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "ConversionsOnly": conversions,
    "Explicit": explicit,
    "ConversionsOnly inline": partial(conversions, background=False),
    "Explicit inline": partial(explicit, background=False),
    PEER: bayesianbandits,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="width x actions")
    parser.add_argument("--rounds", type=int, default=4_000)
    parser.add_argument("--peer", help="an interpreter that has bayesianbandits")
    parser.add_argument("--inline", action="store_true", help="play without background fits too")
    parser.add_argument("--one", choices=PLAYERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        json.dump(PLAYERS[arguments.one](arguments.sizes[0], arguments.rounds), sys.stdout)
        return
    columns = [
        *("decide", "decide p99", "observe", "observe p99", "observe p99 wall"),
        *("observe max wall", "threads", "MB", "regret"),
    ]
    print(f"| size | player | {' | '.join(columns)} |")
    print(f"|---|---|{'--:|' * len(columns)}")
    players = [
        name
        for name in PLAYERS
        if (arguments.inline or "inline" not in name) and (arguments.peer or name != PEER)
    ]
    for size in arguments.sizes:
        for player in players:
            python = arguments.peer if player == PEER else sys.executable
            options = ["--sizes", size, "--rounds", str(arguments.rounds), "--one", player]
            ran = subprocess.run(
                [python, __file__, *options], stdout=subprocess.PIPE, text=True, check=True
            )
            costs = json.loads(ran.stdout)
            cells = (f"{costs[name]:,.{0 if costs[name] > 100 else 2}f}" for name in columns)
            print(f"| {size} | {player} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
