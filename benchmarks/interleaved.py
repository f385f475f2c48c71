"""Compare the CPU time of two checkouts, in the configuration that README recommends.

Each checkout measures itself with its own benchmarks/recommended.py, which lists the measurements;
a checkout without that file gets a copy of this one. ``--script stores`` measures what stores do
instead (benchmarks/stores.py). The checkouts run in turn, each measurement in a process of its own,
and which of the two goes first alternates. Prints the medians of both, and the median and quartiles
of the ratio new / old over the pairs; an interrupted run prints the pairs it has.

The files that catch-up and opening read are built once for each checkout, which takes minutes and,
with 10^6 decisions, about 2 GB of temporary space each.

Run: python benchmarks/interleaved.py --against PATH [--pairs 15] [--only memory http]
     python benchmarks/interleaved.py --against PATH --script stores
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

HERE = Path(__file__).resolve().parent.parent
sys.path.append(str(HERE))

from tests.integration.postgres_server import PostgresServer  # noqa: E402

#: Measurements by script.
MEASUREMENTS = {
    "recommended": [
        "memory",
        "sqlite",
        "postgres",
        "http",
        "catch-up",
        "opening",
        "simulate",
        "plain-rows",
    ],
    "stores": ["sqlite", "postgres"],
}
#: Measurements that read the files built before.
FROM_FILES = {"catch-up", "opening"}
#: Measurements of recommended.py.
QUICK = ["--rounds", "60", "--history", "200", "--events", "400", "--opened", "400", "--uncompiled"]


class Checkout:
    """A checkout of the project, and what it has measured.

    Args:
        path: of the checkout.
        script: name of the script that measures.
        folder: for the files that it builds.
        options: of every measurement.
        server: for databases on PostgreSQL; None if no measurement needs one.
        databases: the measurements that need one, with the option that names it.
    """

    def __init__(
        self,
        path: Path,
        script: str,
        folder: Path,
        options: list[str],
        server: PostgresServer | None,
        databases: dict[str, str],
    ) -> None:
        self._path, self._server, self._database_options = path, server, databases
        self._script = Path("benchmarks", f"{script}.py")
        self._options = ["--folder", str(folder), *options]
        self._databases = 0
        #: CPU seconds of each pair, by measurement.
        self.seconds: dict[str, list[float]] = {}
        if not (path / self._script).exists():
            shutil.copy(HERE / self._script, path / self._script)

    def run(self, name: str) -> dict[str, float]:
        """Run one step of the script in a separate process."""
        command = [sys.executable, str(self._path / self._script), name, *self._options]
        if name in self._database_options:
            command += [self._database_options[name], self._new_database()]
        environment = {"PYTHONPATH": str(self._path / "src"), "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.run(
            command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
        )
        seconds: dict[str, float] = json.loads(process.stdout)
        return seconds

    def measure(self, name: str) -> None:
        """Measure once more."""
        for measurement, seconds in self.run(name).items():
            self.seconds.setdefault(measurement, []).append(seconds)

    def _new_database(self) -> str:
        assert self._server is not None
        self._databases += 1
        name = f"b{id(self)}_{self._databases}"
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._server.dsn.rpartition("/")[0] + f"/{name}"


def compare(old: Checkout, new: Checkout, names: list[str], pairs: int) -> None:
    """Measure in turn, and show progress."""
    runs = [
        (pair, name, checkout)
        for pair in range(pairs)
        for name in names
        for checkout in ((old, new) if pair % 2 else (new, old))
    ]
    begin = time.monotonic()
    for completed, (pair, name, checkout) in enumerate(runs):
        remaining = (
            (time.monotonic() - begin) / completed * (len(runs) - completed) if completed else 0.0
        )
        text = f"pair {pair + 1} of {pairs}: {name}, {remaining / 60:.0f} min left"
        print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)
        checkout.measure(name)
    print(file=sys.stderr)


def report(old: Checkout, new: Checkout) -> None:
    """Print a table of what both checkouts have measured."""
    print("| CPU time | pairs | old | new | new / old, median | quartiles |")
    print("|---|--:|--:|--:|--:|---|")
    for name, after in new.seconds.items():
        pairs = list(zip(old.seconds.get(name, []), after, strict=False))
        if not pairs:
            continue
        ratios = [late / early for early, late in pairs]
        low, middle, high = (
            statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        )
        medians = [statistics.median(values) for values in zip(*pairs, strict=True)]
        cells = " | ".join(_readable(seconds) for seconds in medians)
        print(f"| {name} | {len(pairs)} | {cells} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    base, kinds = "catch-up, explicit", ("conversions", "half-life", "holdout")
    for title, checkout in (("old", old), ("new", new)):
        if base in checkout.seconds:
            explicit = statistics.median(checkout.seconds[base])
            ratios = [
                statistics.median(checkout.seconds[f"catch-up, {kind}"]) / explicit
                for kind in kinds
            ]
            listed = (f"{kind} {ratio:.2f}" for kind, ratio in zip(kinds, ratios, strict=True))
            print(f"catch-up / that of Explicit, {title}: {', '.join(listed)}")


def _readable(seconds: float) -> str:
    """Return microseconds or seconds.

    >>> _readable(0.00021), _readable(3.2)
    ('210.0 µs', '3.20 s')
    """
    return f"{1e6 * seconds:,.1f} µs" if seconds < 0.05 else f"{seconds:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, required=True, help="the old checkout")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--script", choices=MEASUREMENTS, default="recommended")
    parser.add_argument("--only", nargs="+", choices=MEASUREMENTS["recommended"])
    parser.add_argument("--opened", type=int, help="decisions to open (1,000,000)")
    parser.add_argument(
        "--served-from",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="the service's store",
    )
    parser.add_argument("--quick", action="store_true", help="see that each still runs")
    arguments = parser.parse_args()
    options = QUICK if arguments.quick else []
    if arguments.opened is not None:
        options = [*options, "--opened", str(arguments.opened)]
    names = arguments.only or MEASUREMENTS[arguments.script]
    with ExitStack() as stack:
        databases = {"postgres": "--dsn"}
        if arguments.served_from == "postgres":
            databases["http"] = "--address"
        server = None
        if databases.keys() & set(names):
            server = PostgresServer()
            stack.callback(server.stop)
        old, new = (
            Checkout(
                path.resolve(),
                arguments.script,
                Path(stack.enter_context(tempfile.TemporaryDirectory())),
                options,
                server,
                databases,
            )
            for path in (arguments.against, HERE)
        )
        for checkout in (old, new):
            checkout.run("warm")
            if FROM_FILES & set(names):
                checkout.run("build")
        try:
            compare(old, new, names, arguments.pairs)
        finally:
            report(old, new)


if __name__ == "__main__":
    main()
