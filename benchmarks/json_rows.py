"""Rows of numbers from JSON to float32: by the kernel, and by a decoder and Python's own numbers.

CPU time, the least of several repeats, for rows as they are sent: rounded, and with all digits.

Run: python benchmarks/json_rows.py [--repeats 20]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import msgspec
import numpy as np

from belated import Bernoulli, DelayedUCB, Explicit
from belated.kernels import compiled_row_reader
from belated.service import Definition
from belated.service.http import parsing
from belated.service.wire.requests import DecisionRequest

ARMS, DIM, CALLS = 10, 20, 1_000
OFFERS = Definition("offers", DelayedUCB(DIM, Bernoulli()), Explicit(), keep_requests=0.0)


def microseconds(work: Callable[[], object], repeats: int) -> float:
    """Of one call."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(CALLS):
            work()
        found.append((time.process_time() - start) / CALLS)
    return 1e6 * min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    read = msgspec.json.Decoder(DecisionRequest).decode
    table = np.random.default_rng(0).uniform(-1, 1, (ARMS, DIM))
    print(f"{ARMS} rows of {DIM} numbers, µs a request: its body checked, and its rows read")
    print("| digits | bytes | checked | by the kernel | by a decoder |")
    print("|--:|--:|--:|--:|--:|")
    kernel = compiled_row_reader()
    for digits in (2, 17):
        body = json.dumps({"rows": table.round(digits).tolist()}, separators=(",", ":")).encode()
        request = read(body)
        took = [microseconds(lambda: read(body), repeats)]  # noqa: B023
        for reader in (kernel, None):
            parsing.row_reader = lambda: reader  # type: ignore[attr-defined]  # noqa: B023
            took.append(microseconds(lambda: parsing.parse_request(request, OFFERS), repeats))  # noqa: B023
        print(f"| {digits} | {len(body):,} | {' | '.join(f'{one:.1f}' for one in took)} |")


if __name__ == "__main__":
    main()
