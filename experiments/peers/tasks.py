"""Runs of entries in their libraries' environments: several at a time, and none of them twice."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from entries import ENTRIES, Settings
from install import python_of
from problems import HERE, write
from tqdm import tqdm

Run = dict[str, Any]

ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Task:
    """One entry on one problem: several seeds and delays in one process, which starts but once."""

    entry: str
    settings: Settings
    problem: str
    cells: tuple[tuple[int, str], ...]

    def run(self) -> list[Run]:
        entry = ENTRIES[self.entry]
        order = {
            "peer": entry.peer,
            "learner": entry.learner,
            "settings": self.settings,
            "cells": [(str(write(self.problem, seed)), seed, delay) for seed, delay in self.cells],
        }
        ended = subprocess.run(
            [python_of(entry.peer), HERE / "runner.py"],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,  # what it said of its failure is raised below
            env=os.environ | ONE_THREAD,
        )
        if ended.returncode:
            raise RuntimeError(f"{self}:\n{ended.stderr}")
        results = map(json.loads, ended.stdout.splitlines())
        return [self.named(*cell) | of for cell, of in zip(self.cells, results, strict=True)]

    def named(self, seed: int, delay: str) -> Run:
        """What a run is known by."""
        return {
            "problem": self.problem,
            "delay": delay,
            "seed": seed,
            "entry": self.entry,
            "settings": self.settings,
        }


def run_all(tasks: Iterable[Task], *, jobs: int, resume: Path) -> list[Run]:
    """Run what the file of finished runs does not hold yet, and return all that was asked for."""
    finished = {_key(run): run for run in _read(resume)}
    runs, todo = [], []
    for task in tasks:
        known = {cell: finished.get(_key(task.named(*cell))) for cell in task.cells}
        runs += [run for run in known.values() if run]
        if missing := tuple(cell for cell, run in known.items() if not run):
            todo.append(replace(task, cells=missing))
    with ThreadPoolExecutor(jobs) as pool:  # threads, for each only waits for a process
        futures = [pool.submit(task.run) for task in todo]
        try:
            for future in tqdm(as_completed(futures), total=len(futures), unit="task"):
                for run in future.result():
                    with resume.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(run) + "\n")
                    runs.append(run)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # else it would run all the others first
            raise
    return runs


def _key(run: Run) -> str:
    names = ("problem", "delay", "seed", "entry", "settings")
    return json.dumps([run[name] for name in names], sort_keys=True)


def _read(path: Path) -> Iterator[Run]:
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:  # the last line of a sweep that was stopped
            continue
