"""Run entries in their libraries' environments, several at a time, and none of them twice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from install import HERE, python_of
from protocol import ENTRIES, HORIZON, Settings
from tqdm import tqdm
from worlds import file_of

Run = dict[str, Any]

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Task:
    """An entry on a problem: several seeds and delays in one process."""

    entry: str
    settings: Settings
    problem: str
    kind: str
    cells: tuple[tuple[int, str], ...]

    def run(self) -> list[Run]:
        entry = ENTRIES[self.entry]
        numbers = self.kind == "numbers"
        cells = [
            (str(file_of(self.problem, numbers, seed, HORIZON)), seed, delay)
            for seed, delay in self.cells
        ]
        ended = subprocess.run(
            [python_of(entry.library), HERE / "play.py"],
            input=json.dumps({"learner": entry.learner, "settings": self.settings, "cells": cells}),
            capture_output=True,
            text=True,
            check=False,  # its error is raised below, with the task
            env=os.environ | ONE_THREAD,
        )
        if ended.returncode:
            raise RuntimeError(f"{self}:\n{ended.stderr}")
        results = map(json.loads, ended.stdout.splitlines())
        pairs = zip(self.cells, results, strict=True)
        return [self.named(*cell) | result for cell, result in pairs]

    def named(self, seed: int, delay: str) -> Run:
        """Return what identifies a run."""
        return {
            "problem": self.problem,
            "delay": delay,
            "seed": seed,
            "entry": self.entry,
            "settings": self.settings,
        }


def run_all(tasks: Iterable[Task], *, jobs: int, results: Path) -> list[Run]:
    """Run what is missing in the file of results, add it there, and return everything requested."""
    finished = {_key(run): run for run in read(results)}
    runs, todo = [], []
    for task in tasks:
        runs_by_cell = {cell: finished.get(_key(task.named(*cell))) for cell in task.cells}
        runs += [run for run in runs_by_cell.values() if run]
        if missing := tuple(cell for cell, run in runs_by_cell.items() if not run):
            todo.append(replace(task, cells=missing))
    with ThreadPoolExecutor(jobs) as pool:  # threads: each only waits for a process
        futures = [pool.submit(task.run) for task in todo]
        try:
            for future in tqdm(as_completed(futures), total=len(futures), unit="task"):
                for run in future.result():
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(run) + "\n")
                    runs.append(run)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return runs


def _key(run: Run) -> str:
    names = ("problem", "delay", "seed", "entry", "settings")
    return json.dumps([run[name] for name in names], sort_keys=True)


def read(path: Path) -> Iterator[Run]:
    """Yield the runs of a file; the last line may be cut off."""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue
