"""CPU time of chaining records, in µs per record, by the size of a page.

Run: python benchmarks/chain.py [--repeats 200]
"""

from __future__ import annotations

import argparse
import os
import time

from belated.core.events import Record, Void
from belated.journals.chain import LINK, Chain

RECORDS = 8 * LINK


def main() -> None:
    """Print the minimum of some repeats."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    event = Void("a", 5)
    stored = [Record(0, n, 10**15 + n, event, os.urandom(32)) for n in range(1, RECORDS + 1)]
    silent = [Record(0, n, 10**15 + n, event) for n in range(1, RECORDS + 1)]
    print("records a page    stored    in memory   (µs a record)")
    for size in (1, 10, 100, 1_000, 2_000, RECORDS):
        stored_cost, silent_cost = (
            cost(records, size, options.repeats) for records in (stored, silent)
        )
        print(f"{size:14,}  {stored_cost:8.3f}  {silent_cost:11.3f}")


def cost(records: list[Record], size: int, repeats: int) -> float:
    """Return the CPU time per record, in microseconds."""
    pages = [records[n : n + size] for n in range(0, len(records), size)]
    least = float("inf")
    for _ in range(repeats):
        chain = Chain()
        start = time.process_time_ns()
        for page in pages:
            chain.add(page)
        least = min(least, time.process_time_ns() - start)
    return least / len(records) / 1e3


if __name__ == "__main__":
    main()
