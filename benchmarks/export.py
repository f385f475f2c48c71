"""Time and memory of an export of many decisions to Parquet.

``python benchmarks/export.py --decisions 1000000`` writes a journal of a month to a file, as
benchmarks/report.py does, exports it in a separate process with ``belated journal export``, and
prints seconds, the peak resident memory and the size of the file.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
from report import write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder, "shop.db"), Path(folder, "shop.parquet")
        records = write(path, options.decisions)
        address = f"sqlite:///{path}?bandit=shop"
        command = [sys.executable, "-m", "belated", "journal", "export", address]
        start = time.perf_counter()
        subprocess.run([*command, "--format", "parquet", "--output", str(target)], check=True)
        took = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = pq.read_metadata(target).num_rows
        assert rows == options.decisions, rows
        print(
            f"{rows:,} rows of {records:,} records: {took:.1f} s,"
            f" {used.ru_utime + used.ru_stime:.1f} s of CPU, {used.ru_maxrss / 1e6:.2f} GB,"
            f" a file of {target.stat().st_size / 1e6:.0f} MB"
        )


if __name__ == "__main__":
    main()
