"""A model that travels: what comes out chooses exactly as what went in."""

from __future__ import annotations

import numpy as np
import pytest

from belated import Bernoulli, DelayedThompson, DelayedUCB, Gaussian, Poisson
from belated.exceptions import CorruptJournal, JournalMismatch, UnsupportedFormat
from belated.fold.learner import Learner
from belated.fold.published import VERSION, PublishedModel
from belated.model.model import Model
from belated.policies import Policy

POLICIES: list[Policy] = [
    DelayedUCB(3, Bernoulli()),
    DelayedUCB(3, Poisson(), randomized=True),
    DelayedUCB(3, Bernoulli(), metric="gram"),
    DelayedUCB(3, Gaussian("estimate"), pending_weight=0.0),
    DelayedThompson(3, Bernoulli(), floor=0.1),
]


def learned(policy: Policy) -> Model:
    """The model after some rewards, with decisions pending."""
    learner = Learner(policy)
    rng = np.random.default_rng(4)
    for n in range(60):
        x = rng.normal(size=3)
        learner.add_pending(x, 0.2)
        if n % 3:
            learner.learn(x, float(rng.random() < 0.4), 0.2)
    return learner.model


def sent(model: Model, policy: Policy) -> PublishedModel:
    """As it is published."""
    return PublishedModel.of(model, policy, positions=[7, 9], version=16, at=5)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: repr(policy)[:60])
def test_it_chooses_as_before(policy: Policy) -> None:
    """Bit by bit: the same index, propensity and mean, and so after counting decisions."""
    original = learned(policy)
    copy = PublishedModel.read(sent(original, policy).write()).model(policy)
    assert (copy.n, copy.pending, copy.decisions) == (
        original.n,
        original.pending,
        original.decisions,
    )
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = rng.normal(size=(6, 3)).astype(np.float32)
        seed = int(rng.integers(1 << 30))
        choice = policy.choose(original, rows, np.random.default_rng(seed))
        copy_choice = policy.choose(copy, rows, np.random.default_rng(seed))
        assert choice == copy_choice
        for model in (original, copy):
            model.add_pending(rows[choice.index], choice.weight)


def test_changing_one_leaves_the_other_alone() -> None:
    """The copy is a copy."""
    policy = POLICIES[0]
    original = learned(policy)
    before = original.decided.copy()
    copy = sent(original, policy).model(policy)
    copy.add_pending(np.ones(3), 0.25)
    np.testing.assert_array_equal(original.decided, before)
    assert copy.pending == original.pending + 1


def test_a_model_of_a_different_policy_is_refused() -> None:
    """Also where only a setting differs."""
    policy = POLICIES[0]
    other_policy = DelayedUCB(3, Bernoulli(), alpha=0.5)
    assert policy.fingerprint == DelayedUCB(3, Bernoulli()).fingerprint
    with pytest.raises(JournalMismatch, match="a different policy"):
        sent(learned(policy), policy).model(other_policy)


def test_a_changed_bit_is_noticed() -> None:
    """Wherever it is, beyond the version."""
    data = sent(learned(POLICIES[0]), POLICIES[0]).write()
    for index in (1, 20, len(data) - 1):
        broken = bytearray(data)
        broken[index] ^= 1
        with pytest.raises(CorruptJournal, match="publish the model again"):
            PublishedModel.read(bytes(broken))


@pytest.mark.parametrize("data", [b"", bytes([VERSION + 1]) + b"whatever"])
def test_another_format_is_refused(data: bytes) -> None:
    """With what to do."""
    with pytest.raises(UnsupportedFormat, match="upgrade belated"):
        PublishedModel.read(data)
