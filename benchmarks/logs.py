"""Time to read, evaluate and report a log, and to convert it to a journal.

``python benchmarks/logs.py --decisions 200000`` makes a pandas frame with times in a time zone and
half of the rewards pending, and prints wall-clock and CPU seconds of each step.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pandas as pd

from belated import Explicit
from belated.evaluation import Log

ACTIONS = np.array(["mail", "call", "gift", "none"])
DAYS = 28


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=200_000)
    options = parser.parse_args()
    frame = made(options.decisions)
    pending = frame["reward"].isna().mean()
    print(f"{len(frame):,} lines, {pending:.0%} of the rewards pending", flush=True)
    with timed("all of it"):
        with timed("import"):
            log = Log.from_frame(frame, rewards=Explicit(), context=["age", "country", "member"])
        with timed("evaluate"):
            value = log.evaluate(lambda context, names: "gift" if context["member"] else "mail")
        with timed("delay curve and forecast"):
            log.delay_curve()
            log.forecast("7d")
        with timed("report"):
            page = log.report().html()
    with timed("to a journal in memory"):
        assert log.journal.end(0) > len(frame)
    print(f"{value}; a report of {len(page) / 1e6:.1f} MB")


@contextmanager
def timed(what: str) -> Iterator[None]:
    start, cpu = time.perf_counter(), time.process_time()
    yield
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what}: {wall:.2f} s, {cpu:.2f} s of CPU", flush=True)


def made(count: int) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    member = rng.random(count) < 0.4
    share = np.where(member[:, None], [0.1, 0.2, 0.6, 0.1], [0.4, 0.3, 0.2, 0.1])
    chosen = (rng.random(count)[:, None] > share.cumsum(axis=1)).sum(axis=1)
    rate = np.where(member[:, None], [0.1, 0.15, 0.45, 0.1], [0.3, 0.2, 0.1, 0.1])
    decided = pd.Timestamp("2026-03-01", tz="Europe/Vienna") + pd.to_timedelta(
        np.sort(rng.random(count)) * DAYS, "D"
    )
    arrived = decided + pd.to_timedelta(rng.exponential(0.6 * DAYS, count), "D")
    has_arrived = arrived <= decided[-1]
    line = np.arange(count)
    reward = (rng.random(count) < rate[line, chosen]).astype(float)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, count),
            "country": np.array(["AT", "DE", "CH", "FR"])[rng.integers(4, size=count)],
            "member": member,
            "action": ACTIONS[chosen],
            "propensity": share[line, chosen],
            "decided_at": decided,
            "reward": np.where(has_arrived, reward, np.nan),
            "rewarded_at": arrived.where(has_arrived),
        }
    )


if __name__ == "__main__":
    main()
