"""Arguments and output of sweeps and analyses."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from belated import simulate_many
from belated.delays import DelayProcess
from belated.policies import Policy
from belated.simulation.environments import Environment


def parse(doc: str | None, here: Path, seeds: int, first_seed: int = 0) -> argparse.Namespace:
    """Parse the arguments of a sweep; ``resume`` is the file of finished runs."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=seeds, help=f"number of seeds ({seeds})")
    parser.add_argument("--first-seed", type=int, default=first_seed)
    parser.add_argument("--jobs", type=int, default=-1, help="processes (all cores)")
    parser.add_argument("--output", type=Path, default=here / "table.csv")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    arguments.resume = arguments.output.with_name("runs.jsonl")
    arguments.start = time.perf_counter()
    return arguments


def simulate(
    policies: Mapping[str, Callable[[Environment], Policy]],
    worlds: Mapping[str, Callable[[int], Environment]],
    delays: Mapping[str, DelayProcess],
    horizon: int,
    arguments: argparse.Namespace,
) -> pd.DataFrame:
    """Simulate every policy on every problem and delay, and write the final regrets."""
    table = simulate_many(
        policies,
        worlds,
        delays,
        seeds=arguments.seeds,
        horizon=horizon,
        resume=arguments.resume,
        jobs=arguments.jobs,
    )
    write(table, ["policy", "environment", "delay", "seed", "regret"], arguments)
    return table


def write(table: pd.DataFrame, columns: list[str], arguments: argparse.Namespace) -> None:
    """Write these columns, and print a line with the elapsed time."""
    table[columns].to_csv(arguments.output, index=False, float_format="%.2f")
    minutes = (time.perf_counter() - arguments.start) / 60
    print(f"{len(table)} rows in {minutes:.1f} minutes -> {arguments.output.name}")


def read(doc: str | None, here: Path) -> tuple[pd.DataFrame, Path]:
    """Return the table to analyse, from the argument ``--table``, and its folder."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=here / "table.csv")
    path = parser.parse_args().table
    return pd.read_csv(path, dtype={"delay": str}), path


def publish(text: str, path: Path) -> None:
    """Print a table, and write it to a file."""
    print(text)
    path.with_suffix(".md").write_text(text, encoding="utf-8")
