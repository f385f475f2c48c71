"""The fingerprint of a policy depends on all of its values, and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Gaussian, Greedy, delays
from belated.exceptions import JournalMismatch
from belated.fold.published import PublishedModel
from belated.model.estimators import Laplace, Online
from belated.model.model import Model
from belated.model.priors import Prior
from belated.policies import Policy, Warmup
from belated.policies.fingerprint import described, fingerprint

B = Bernoulli()
#: So many numbers are shortened by ``repr``.
DIM = 2_000


def large(entry: float = 0.0) -> DelayedUCB:
    """Return a policy with a large prior mean that differs in one entry in the middle."""
    mean = np.zeros(DIM)
    mean[DIM // 2] = entry
    return DelayedUCB(DIM, B, prior=Prior(mean, np.eye(DIM)))


def test_one_number_of_a_large_prior_makes_another_policy() -> None:
    """Their reprs are equal; a model of one is refused by the other."""
    policy, changed = large(), large(1e-9)
    assert repr(policy) == repr(changed)
    assert policy.fingerprint != changed.fingerprint
    assert policy.fingerprint == large().fingerprint
    model = Model(policy.start, policy.family)
    published = PublishedModel.of(model, policy, positions=[0], version=0, at=0)
    with pytest.raises(JournalMismatch, match="a different policy"):
        published.model(changed)


DIFFERENT: dict[str, Callable[[], Any]] = {
    "ucb": lambda: DelayedUCB(2, B),
    "another class": lambda: Greedy(2, B),
    "another width of rows": lambda: DelayedUCB(3, B),
    "another family": lambda: DelayedUCB(2, Gaussian()),
    "another variance": lambda: DelayedUCB(2, Gaussian(0.5)),
    "another setting": lambda: DelayedUCB(2, B, alpha=0.5),
    "another estimator": lambda: DelayedUCB(2, B, estimator=Online()),
    "another setting of it": lambda: DelayedUCB(2, B, estimator=Laplace(growth=1.5)),
    "a prior": lambda: DelayedUCB(2, B, prior=Prior.ridge(2, 1.0)),
    "an adaptive one": lambda: DelayedUCB(2, B, prior=Prior.ridge(2, "auto")),
    "a warm-up": lambda: Warmup(DelayedUCB(2, B)),
    "a longer one": lambda: Warmup(DelayedUCB(2, B), rounds=5),
    "of a different policy": lambda: Warmup(DelayedUCB(2, B, alpha=0.5), rounds=5),
    "a list": lambda: [np.zeros(4)],
    "a list in another shape": lambda: [np.zeros((2, 2))],
    "a list of another type": lambda: [np.zeros(4, dtype=np.float32)],
    "objects": lambda: np.array([1, "a"], dtype=object),
    "other objects": lambda: np.array([1, "b"], dtype=object),
    "names": lambda: {"a": np.zeros(2), "b": 1},
    "other names": lambda: {"a": np.zeros(2), "c": 1},
}


def test_whatever_differs_has_another_fingerprint() -> None:
    """Equal policies have equal fingerprints."""
    fingerprints = {name: fingerprint(factory()) for name, factory in DIFFERENT.items()}
    assert len(set(fingerprints.values())) == len(DIFFERENT)
    assert fingerprints == {name: fingerprint(factory()) for name, factory in DIFFERENT.items()}
    assert fingerprint(B, 1) != fingerprint(B, 2)


def test_without_arrays_it_is_that_of_the_repr() -> None:
    """Models published by earlier releases remain readable."""
    policy = DelayedUCB(3, Gaussian("estimate"), alpha=0.5)
    # What came later is left out while it has its default.
    expected = repr(policy).replace("half_life=None, ", "").replace("learn_after=None, ", "")
    assert described(policy) == expected
    forgetting = DelayedUCB(3, Gaussian("estimate"), half_life="7d")
    assert described(forgetting) == repr(forgetting).replace("learn_after=None, ", "")


def test_another_process_finds_the_same() -> None:
    """Learners and deciders agree on it."""
    code = "from belated import *; print(DelayedUCB(2, Bernoulli(), alpha=0.5).fingerprint)"
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert process.stdout.strip() == DelayedUCB(2, B, alpha=0.5).fingerprint


@dataclass(frozen=True)
class _Mine(Policy):
    seen: list[int] = field(default_factory=list, compare=False)


def test_a_class_of_others_is_named_with_its_module() -> None:
    """Our own classes can move between modules."""
    first, second = _Mine(2, B), _Mine(2, B, seen=[1])
    assert described(first).startswith(f"{__name__}._Mine(dim=2, ")
    assert first.fingerprint == second.fingerprint


def test_a_sweep_tells_large_priors_and_large_delays_apart() -> None:
    """Empirical delays with equal reprs differ."""
    samples = np.arange(DIM)
    law, changed = (
        delays.Empirical(samples),
        delays.Empirical(np.where(samples == 900, 901, samples)),
    )
    assert fingerprint(large(), law) != fingerprint(large(1e-9), law)
    assert fingerprint(large(), law) != fingerprint(large(), changed)
    assert fingerprint(large(), law) == fingerprint(large(), delays.Empirical(samples))
