"""What 10⁵ rank-one steps leave of a root's accuracy.

Measured as the greatest relative error of xᵀH⁻¹x over 50 directions x, against H summed and
factorised in extended precision.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from belated import Bernoulli, Gaussian
from belated.core.inputs import Matrix, Vector
from belated.model import kernels
from belated.model.blocks import root_of
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior
from tests.statistical.problems import sphere

Extended = NDArray[np.longdouble]
BOUND = 1e-10


def exact_forms(rows: Matrix, weights: Vector, probes: Matrix) -> Extended:
    """The forms xᵀ(I + Σ w r rᵀ)⁻¹x in extended precision."""
    dim = rows.shape[1]
    H = np.eye(dim, dtype=np.longdouble)
    for start in range(0, len(rows), 1000):
        part = rows[start : start + 1000].astype(np.longdouble)
        H += (part * weights[start : start + 1000, None]).T @ part
    factor = np.zeros_like(H)
    solution = probes.T.astype(np.longdouble)
    for j in range(dim):
        factor[j, j] = np.sqrt(H[j, j] - factor[j, :j] @ factor[j, :j])
        factor[j + 1 :, j] = (H[j + 1 :, j] - factor[j + 1 :, :j] @ factor[j, :j]) / factor[j, j]
        solution[j] = (solution[j] - factor[j, :j] @ solution[:j]) / factor[j, j]
    return np.asarray(np.square(solution).sum(axis=0))


def drift(root: Matrix, rows: Matrix, weights: Vector, rng: np.random.Generator) -> float:
    """The greatest relative error of the forms of a root."""
    probes = sphere(50, rows.shape[1], rng)
    forms = np.square(probes @ root).sum(axis=1)
    return float(np.abs(forms / exact_forms(rows, weights, probes) - 1.0).max())


@pytest.mark.parametrize("family", [Gaussian(), Bernoulli()], ids=str)
@pytest.mark.parametrize("dim", [10, 50])
def test_roots_that_are_renewed_do_not_drift(dim: int, family: Family, full: bool) -> None:
    """Both roots are right to 1e-10 after 10⁵ decisions, each with its reward."""
    n = 1_000_000 if full else 100_000
    rng = np.random.default_rng(dim)
    rows = sphere(n, dim, rng)
    rewards = family.sample(rows @ (3.0 * sphere(1, dim, rng)[0]), rng)
    model = Model(Prior.ridge(dim), family)
    frozen_weights, learned = np.empty(n), np.empty(n)
    observed, decided = np.eye(dim), np.eye(dim)
    period = max(1000, 10 * dim) // 2  # each decision is a step of each root
    last = 0
    for t, x in enumerate(rows):
        if t - last == period:
            part = rows[last:t]
            observed += (part * learned[last:t, None]).T @ part
            decided += (part * frozen_weights[last:t, None]).T @ part
            model.renew(observed, decided)
            last = t
        frozen_weights[t] = model.argmax_ucb(x[None, :], 0.0)[3]
        model.add_pending(x, float(frozen_weights[t]))
        learned[t] = model.learn(x, float(rewards[t]))
    drifts = (
        drift(model.observed, rows, learned, rng),
        drift(model.decided, rows, frozen_weights, rng),
    )
    print(f"\nd={dim} {family}: observed {drifts[0]:.1e}, decided {drifts[1]:.1e}")
    assert max(drifts) < BOUND


@pytest.mark.parametrize("chosen", [kernels.plain, kernels.best], ids=["plain", "best"])
@pytest.mark.parametrize("dim", [10, 50])
def test_a_root_that_is_never_renewed_hardly_drifts(
    dim: int, chosen: Callable[[], kernels.Kernels], full: bool
) -> None:
    """The update alone, 10⁵ times on a bare root, is right to 1e-10."""
    n = 1_000_000 if full else 100_000
    rng = np.random.default_rng(dim)
    rows = sphere(n, dim, rng)
    root, count = root_of(np.eye(dim)), chosen().count
    for x in rows:
        count(root, x, 1.0)
    error = drift(root, rows, np.ones(n), rng)
    print(f"\nd={dim} {chosen.__name__}, never renewed: {error:.1e}")
    assert error < BOUND


@pytest.mark.parametrize("dim", [10, 50])
def test_a_root_hardly_drifts_when_rows_leave_again(dim: int, full: bool) -> None:
    """200 rows at a time, 10⁵ steps in and out on a bare root: right to 1e-10."""
    n = 500_000 if full else 50_000
    rng = np.random.default_rng(dim)
    rows = sphere(n, dim, rng)
    root, count = root_of(np.eye(dim)), kernels.best().count
    for t, x in enumerate(rows):
        count(root, x, 1.0)
        if t >= 200:
            count(root, rows[t - 200], -1.0)
    error = drift(root, rows[-200:], np.ones(200), rng)
    print(f"\nd={dim}, a window of 200 rows: {error:.1e}")
    assert error < BOUND
