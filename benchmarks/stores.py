"""Measure the CPU time of what stores do, in this checkout.

``benchmarks/interleaved.py --script stores`` compares two checkouts. It prints a JSON object: CPU
seconds of this process by measurement; the CPU of servers is not counted.

* append: one decision, and each of a hundred in one call.
* read: one record, in pages of a thousand.
* look up: the records of one id, and each of the decisions of a hundred ids in one call.
* renew: the leases of a hundred bandits, all together.
* save and load: a snapshot of 32 pieces of 64 KiB, of which one is new each time.

Run: python benchmarks/stores.py sqlite
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from belated.core.events import Decision
from belated.core.ids import new_id
from belated.journals import Journal, Store
from belated.journals.addresses import open_store
from belated.journals.coordination import Held, renew_leases
from belated.journals.snapshots import Snapshot

ROW = np.linspace(0, 1, 20, dtype=np.float32)
#: Number of pieces of a snapshot, and their size in bytes.
PIECES, SIZE = 32, 1 << 16
BANDITS = 100

Seconds = dict[str, float]


def each(act: Callable[[], object], count: int) -> float:
    """Return the CPU time per call."""
    begin = time.process_time()
    for _ in range(count):
        act()
    return (time.process_time() - begin) / count


def decisions(count: int) -> list[Decision]:
    """Return decisions with newly generated ids."""
    now = time.time_ns() // 1000
    return [Decision(new_id(now), now, "blue", 0, ROW, 0.25, 1.0, 7) for _ in range(count)]


def of_journal(journal: Journal, rounds: int) -> Seconds:
    """Measure the operations of a journal."""
    singles, many = iter(decisions(rounds)), iter(decisions(100 * rounds))
    costs = {"append one": each(lambda: journal.append([next(singles)]), rounds)}
    hundred = [[next(many) for _ in range(100)] for _ in range(rounds)]
    batches = iter(hundred)
    costs["append 100"] = each(lambda: journal.append(next(batches)), rounds) / 100
    count = 101 * rounds

    def read() -> None:
        after = 0
        while page := journal.read(0, after, 1_000):
            after = page[-1].position

    costs["read"] = each(read, 3) / count
    ids = iter([batch[0].id for batch in hundred])
    costs["look up one"] = each(lambda: journal.records_of([next(ids)]), rounds)
    groups = iter([[decision.id for decision in batch] for batch in hundred])
    costs["look up 100"] = each(lambda: journal.decisions(next(groups)), rounds) / 100
    pieces = {f"block {n}": secrets.token_bytes(SIZE) for n in range(PIECES)}
    journal.save(Snapshot(0, 1, "v1", pieces))
    unchanged = frozenset({*pieces} - {"block 0"})

    def save() -> None:
        journal.save(Snapshot(0, 1, "v1", {"block 0": secrets.token_bytes(SIZE)}, unchanged))

    costs["save"] = each(save, 50)
    costs["load"] = each(lambda: journal.load(0), 20)
    return costs


def renewal(store: Store, rounds: int) -> float:
    """Measure how long it takes to renew the leases of a hundred bandits."""
    leases = {}
    for n in range(BANDITS):
        store.journal(f"bandit {n}").close()
        with closing(store.coordination(f"bandit {n}")) as coordination:
            epoch = coordination.acquire_lease("learner", 600.0)
            assert epoch is not None
            leases[f"bandit {n}"] = Held("learner", epoch)
    with closing(store.coordination("bandit 0")) as coordination:
        cells = coordination.cells
        return each(lambda: renew_leases(cells, leases, 600.0), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=("warm", "sqlite", "postgres"))
    parser.add_argument("--folder", help="ignored")
    parser.add_argument("--dsn", help="a database of PostgreSQL")
    parser.add_argument("--rounds", type=int, default=300)
    arguments = parser.parse_args()
    results: Seconds = {}
    if arguments.engine != "warm":
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            address = arguments.dsn or f"sqlite:///{Path(folder, 'bandits.db')}"
            store = open_store(address)
            store.create_tables()
            rounds = arguments.rounds
            with closing(store.journal("offers")) as journal:
                results = of_journal(journal, rounds)
            results["renew 100 leases"] = renewal(store, rounds)
    json.dump(
        {f"{arguments.engine}, {name}": seconds for name, seconds in results.items()}, sys.stdout
    )


if __name__ == "__main__":
    main()
