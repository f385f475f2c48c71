"""Run every benchmark in turn; ``--quick`` only checks that each still runs.

Each prints its own table. In a quick run the sizes are too small for the figures to mean anything:
a failure shows that a benchmark no longer fits the code that it measures. Without ``--slow``, a
quick run skips those that take longest.

Run: python -m benchmarks [--quick [--slow]] [--only service kafka]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
#: Options of each benchmark in a quick run; None if it takes minutes at any size.
QUICK: dict[str, str | None] = {
    "advice": "--rounds 500",
    "asgi": "--slices 1 --seconds 1",
    "attacks": "--seconds 1 --attack malformed",
    "bandits": None,
    "batches": "--repeats 1 --count 50",
    "blocks_regret": "--size 3x2 --rounds 50 --seeds 2",
    "catching_up": "--events 2000 --opened 2000 --repeats 1",
    "chain": "--repeats 2",
    "cold_start": None,
    "console": "--decisions 500 --seconds 1 --pairs 1",
    "contested": "--events 2000 --repeats 1 --bound 100",
    "crowded_ids": "--ids 200 --slices 1 --seconds 0.2 --bound 100",
    "embeddings": "--sizes 20x3 --rounds 200",
    "export": "--decisions 500",
    "first_hour": None,
    "fits": "--rounds 50 --repeats 1",
    "forgetting": "--slices 1 --sizes 20x10",
    "interleaved": f"--against {HERE.parent} --quick --pairs 1 --only postgres opening",
    "kafka": "--rounds 1 --events 500 --seconds 0.5 --parts produce",
    "kafka_soak": None,
    "kernels": "--slices 1",
    "lines_of_code": "",
    "logs": "--decisions 2000",
    "low_load": "--slices 1 --seconds 0.4 --rates 50",
    "many_actions": "--slices 1 --sizes 1",
    "many_subjects": "--subjects 1000",
    "memory": "--decisions 1000 --forgotten 1000",
    "path_of_a_decision": "",
    "policies": "--slices 1",
    "postgres": "--slices 2 --seconds 0.1",
    "postgres_throughput": "--slices 2 --batches 2 --events 1000",
    "refit": "--rows 1000 --dim 5 --repeats 1",
    "report": "--decisions 500",
    "requests": "--pairs 2 --decisions 200",
    "restore": "--events 500",
    "rewards_memory": "--rewards 1000",
    "rounds": "--slices 4",
    "service": "--slices 1 --seconds 1",
    "service_kafka": "--slices 1 --seconds 3 --brokers 1",
    "service_latency": "--rounds 1 --seconds 1 --rewards 1000",
    "sizing": "--measure sqlite --rounds 1 --seconds 0.5",
    "snapshots": "--decisions 1000 --saves 1",
    "soak": "0.1 --bandits 3 --rate 50",
    "stores": "sqlite --rounds 3",
    "subjects": "--rounds 1 --slice 20 --history 200",
    "trimming": None,
    "workers": "--events 2000 --rounds 1",
}
#: These take more than 20 s even in a quick run, mostly to start servers. They are skipped unless
#: `--slow` is given; type checks still show when they no longer fit the code.
SLOW = {
    "console", "crowded_ids", "forgetting", "interleaved", "kafka", "low_load", "many_subjects",
    "policies", "rounds", "service", "service_kafka", "service_latency", "sizing", "soak",
    "subjects", "workers",
}  # fmt: skip
#: Required options of a full run.
FULL = {"interleaved": f"--against {HERE.parent}", "stores": "sqlite"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only check that each still runs")
    parser.add_argument("--slow", action="store_true", help="with --quick: the slow ones, too")
    parser.add_argument("--only", nargs="*", choices=QUICK)
    arguments = parser.parse_args()
    if forgotten := scripts() ^ set(QUICK):
        sys.exit(f"benchmarks, and what benchmarks/__main__.py names, differ: {sorted(forgotten)}")
    failed, skipped = [], SLOW if arguments.quick and not arguments.slow else set()
    for name in arguments.only or [name for name in QUICK if name not in skipped]:
        options = QUICK[name] if arguments.quick else FULL.get(name, "")
        if options is None:
            continue
        print(f"== {name} {options}", flush=True)
        start = time.perf_counter()
        ended = subprocess.run([sys.executable, HERE / f"{name}.py", *options.split()], check=False)
        print(f"== {name}: {time.perf_counter() - start:.0f} s", flush=True)
        if ended.returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def scripts() -> set[str]:
    """Return the names of scripts that can be run; the others are shared modules."""
    names = {file.stem: file.read_text(encoding="utf-8") for file in HERE.glob("*.py")}
    return {name for name, text in names.items() if f"python benchmarks/{name}.py" in text}


if __name__ == "__main__":
    main()
