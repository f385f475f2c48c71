"""Tune the entries on the tuning problems, then run all of them on the reporting problems.

Both follow ``protocol.toml``. Finished runs are added to ``tuning.jsonl`` and ``results.jsonl``
beside this file, from which an interrupted run continues. Run install.py before, analysis.py after.

Run: python experiments/benchmark/run.py tuning [--jobs 2]
     python experiments/benchmark/run.py reporting [--entries "river LinUCB"] [--seeds 6]
"""

from __future__ import annotations

import argparse
from collections import defaultdict

from install import HERE
from protocol import ENTRIES, PROTOCOL, Settings, problems_of
from tasks import Run, Task, read, run_all

TUNING, RESULTS = HERE / "tuning.jsonl", HERE / "results.jsonl"


def best_settings(runs: list[Run], entry: str, kind: str) -> Settings:
    """Return the settings of an entry for a kind of problems, by the rule of the protocol."""
    tried = ENTRIES[entry].settings
    if len(tried) == 1:
        return tried[0]
    problems = [
        problem for problem, problem_kind in problems_of("tuning").items() if problem_kind == kind
    ]
    scores = [0.0] * len(tried)
    for problem in problems:
        regrets: dict[int, list[float]] = defaultdict(list)
        for run in runs:
            if (run["entry"], run["problem"]) == (entry, problem):
                regrets[tried.index(run["settings"])].append(run["regret"])
        means = [sum(regrets[n]) / len(regrets[n]) for n in range(len(tried))]
        scores = [score + mean / min(means) for score, mean in zip(scores, means, strict=True)]
    return tried[scores.index(min(scores))]


def tune(jobs: int, entries: list[str]) -> None:
    part = PROTOCOL["tuning"]
    cells = tuple((seed, delay) for seed in part["seeds"] for delay in part["delays"])
    tasks = [
        Task(name, settings, problem, kind, cells)
        for problem, kind in problems_of("tuning").items()
        for name in entries
        for settings in ENTRIES[name].settings
        if len(ENTRIES[name].settings) > 1
    ]
    run_all(tasks, jobs=jobs, results=TUNING)


def report(jobs: int, entries: list[str], seeds: int) -> None:
    part = PROTOCOL["reporting"]
    tuning = list(read(TUNING))
    tasks = [
        Task(name, best_settings(tuning, name, kind), problem, kind, cells)
        for seed in part["seeds"][:seeds]
        for problem, kind in problems_of("reporting").items()
        for name in entries
        for cells in [tuple((seed, delay) for delay in part["delays"])]
    ]
    run_all(tasks, jobs=jobs, results=RESULTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["tuning", "reporting"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--entries", nargs="*", default=list(ENTRIES))
    parser.add_argument("--seeds", type=int, default=len(PROTOCOL["reporting"]["seeds"]))
    arguments = parser.parse_args()
    if arguments.part == "tuning":
        tune(arguments.jobs, arguments.entries)
    else:
        report(arguments.jobs, arguments.entries, arguments.seeds)


if __name__ == "__main__":
    main()
