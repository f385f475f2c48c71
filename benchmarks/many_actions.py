"""CPU time of a decision between 1,000 or 10,000 actions.

(a) Choosing: a policy with rows in float32, as they are stored, relative to the BLAS products of
    the same rows in float64 that give all scores and widths: X S with the length of each row, and
    X θ. Before the first reward, when all means are equal, and after 300.
(b) ``Shared.rows`` of 20 × 20 encoded fields, with records and by the names of a catalogue.
(c) ``Bandit.decide`` end to end, in memory: with rows passed by the caller, ``Shared`` with
    records, with names, and with the whole catalogue; relative to the BLAS product of its rows.

Run: python benchmarks/many_actions.py [--slices 9]
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm, dgemv

from belated import (
    Bandit,
    Bernoulli,
    Category,
    DelayedThompson,
    DelayedUCB,
    Explicit,
    Number,
    Shared,
)
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.model import Model

SIZES = [(count, dim) for count in (1_000, 10_000) for dim in (50, 100)]
#: Maximum ratio of a decision to one product.
TARGET = 2.0
#: Numbers in context and action: (c) with 6 × 6 has rows of 49 numbers, with 9 × 9 of 100.
WIDE, FIELDS = 20, (6, 9)


def product(rows: Matrix, theta: Vector, root: Matrix) -> Vector:
    """Scores and widths by BLAS."""
    spread = dgemm(1.0, root.T, rows.T).T
    widths = np.sqrt(np.vecdot(spread, spread))
    scores: Vector = dgemv(1.0, rows.T, theta, 2.0, widths, 0, 1, 0, 1, 1, 1)
    return scores


def milliseconds(variants: dict[str, Callable[[], Any]], slices: int) -> dict[str, list[float]]:
    """Return the CPU time of a call of each variant, in alternating slices."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(slices + 1):
        for name, call in variants.items():
            start, calls = time.process_time(), 0
            while time.process_time() - start < 0.05 or calls < 3:
                call()
                calls += 1
            if number:  # the first slice warms
                times[name].append(1e3 * (time.process_time() - start) / calls)
    return times


def report(title: str, times: dict[str, list[float]], target: float | None = None) -> None:
    """Print the medians and, if there is a product, the ratios to it with their quartiles."""
    bare = np.array(times.pop("BLAS", [np.nan]))
    print(f"{title}: BLAS {np.median(bare):.2f} ms" if bare[0] == bare[0] else f"{title}:")
    for name, values in times.items():
        ratio = ""
        if bare[0] == bare[0]:
            low, middle, high = np.quantile(np.array(values) / bare, [0.25, 0.5, 0.75])
            ratio = f", {middle:.2f} [{low:.2f}, {high:.2f}]"
        print(f"  {name:<32} {np.median(values):.2f} ms{ratio}", end="")
        print("" if target is None else f", target {target}", flush=True)


def choosing(count: int, dim: int, rewards: int, slices: int) -> None:
    """(a)."""
    rng = np.random.default_rng(0)
    stored = (rng.normal(size=(count, dim)) / dim**0.5).astype(np.float32)
    rows = stored.astype(np.float64)
    variants: dict[str, Callable[[], Any]] = {}
    for policy in (DelayedUCB(dim, Bernoulli()), DelayedThompson(dim, Bernoulli())):
        for name in ("plain", "compiled"):
            model = Model(policy.start, policy.family, kernels=getattr(kernels, name)())
            for x in rows[:rewards]:
                model.add_pending(x, 0.25)
                model.learn(x, float(rng.random() < 0.3))
            variants["BLAS"] = partial(product, rows, model.theta, model.decided)
            variants[f"{type(policy).__name__}, {name}"] = partial(
                policy.choose, model, stored, rng
            )
    report(f"choose, K={count}, d={dim}, {rewards} rewards", milliseconds(variants, slices), TARGET)


def world(count: int, fields: int) -> tuple[Shared, dict[str, float], dict[str, dict[str, Any]]]:
    """Return features with a catalogue, a context and the records."""
    rng = np.random.default_rng(0)
    numbers = {f"f{n}": Number(-2, 2) for n in range(fields)}
    records = [
        {f"f{n}": float(value) for n, value in enumerate(line)}
        for line in rng.normal(size=(count, fields))
    ]
    offers = {f"offer {n}": record for n, record in enumerate(records)}
    context = {f"f{n}": float(value) for n, value in enumerate(rng.normal(size=fields))}
    return Shared(context=numbers, action=numbers, catalogue=offers), context, offers


def making_rows(slices: int) -> None:
    """(b)."""
    features, context, offers = world(1_000, WIDE)
    bare = Shared(context=features.context, action=features.action)
    numbers = {f"f{n}": Number(-2, 2) for n in range(WIDE)}
    mixed = Shared(context=features.context, action={**numbers, "kind": Category(["a", "b"])})
    kinds = {name: {**record, "kind": "a"} for name, record in offers.items()}
    names = list(offers)
    variants: dict[str, Callable[[], Any]] = {
        "records": lambda: bare.rows(context, offers),
        "records with a category": lambda: mixed.rows(context, kinds),
        "names": lambda: features.rows(context, names),
    }
    title = f"Shared.rows, {WIDE} × {WIDE} fields, K=1000, d={features.dim}"
    report(title, milliseconds(variants, slices))


def deciding(count: int, fields: int, slices: int) -> None:
    """(c)."""
    features, context, offers = world(count, fields)
    bare = Shared(context=features.context, action=features.action)
    names, bare_rows = list(offers), bare.rows(context, offers)
    policy = DelayedUCB(features.dim, Bernoulli())
    cases = {
        "own rows": (None, bare_rows, None),
        "Shared, records": (bare, context, offers),
        "Shared, names": (features, context, names),
        "Shared, all of the catalogue": (features, context, None),
    }
    model = Model(policy.start, policy.family)
    rows = bare_rows.astype(np.float64)
    variants: dict[str, Callable[[], Any]] = {
        "BLAS": lambda: product(rows, model.theta, model.decided)
    }
    for name, (encoding, inputs, actions) in cases.items():
        bandit = Bandit(policy=policy, rewards=Explicit("7d"), features=encoding, seed=0)
        if bandit.features is None:
            variants[name] = partial(bandit.decide, None, actions, rows=inputs)
        else:
            variants[name] = partial(bandit.decide, inputs, actions)
    title = f"Bandit.decide, {fields} × {fields} fields, K={count}, d={features.dim}"
    report(title, milliseconds(variants, slices))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slices", type=int, default=9)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes")
    options = parser.parse_args()
    print("CPU ms (median), ratio to one product by BLAS with quartiles")
    for count, dim in SIZES[: options.sizes]:
        for rewards in (0, 300):
            choosing(count, dim, rewards, options.slices)
    making_rows(options.slices)
    for count in sorted({count for count, _ in SIZES[: options.sizes]}):
        for fields in (*FIELDS, WIDE):
            deciding(count, fields, options.slices)


if __name__ == "__main__":
    main()
