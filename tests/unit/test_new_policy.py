"""A policy of one's own: one class with ``choose``, and one line that registers it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, delays, environments, simulate
from belated.decider import Decider, LoadedModel, ParsedRequest
from belated.exceptions import InvalidConfig, InvalidInput
from belated.expressions import (
    POLICIES,
    POLICY_NAMES,
    as_policy,
    as_whole_policy,
    load_modules,
    register,
)
from belated.fold.learner import Learner
from belated.fold.published import PublishedModel
from belated.model.model import Model
from belated.policies import Choice, Policy
from belated.service.operating.config import parse_config
from tests.command_line import Command


@dataclass(frozen=True)
class Softmax(Policy):
    """Choose each row with a probability that grows with its mean."""

    _: KW_ONLY
    temperature: float = 0.3

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """One of the rows."""
        means, _ = model.score(rows)
        shares = np.exp((means - means.max()) / self.temperature)
        return self.mixed(model, rows, rng, shares / shares.sum())


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    """It is registered, as by a decorator; whatever a test registers is gone after it."""
    before = dict(POLICY_NAMES)
    register(Softmax)
    yield
    POLICY_NAMES.clear()
    POLICY_NAMES.update(before)


SERVED = """
[store]
address = "postgresql://localhost/belated"
[bandits.offers]
policy = "{}(dim=3, family=Bernoulli(), temperature=0.5)"
rewards = "Explicit"
"""

#: As another package would have it.
MODULE = """
from dataclasses import dataclass
from belated.expressions import register
from belated.policies import Policy, Choice

@register
@dataclass(frozen=True)
class Second(Policy):
    temperature: float = 0.5

    def choose(self, model, rows, rng):
        index = min(1, len(rows) - 1)
        mean, weight = model.predict(rows[index])
        return Choice(index, 1.0, mean, weight)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of another package."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "policies.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    yield "shop.policies"
    for name in ("shop", "shop.policies"):
        sys.modules.pop(name, None)


def test_it_is_simulated() -> None:
    """It prefers what is better, and says with which probability it chose."""
    world = environments.fixed(3)
    policy = Softmax(world.dim, Bernoulli(), temperature=0.2, floor=0.1)
    trace = simulate(policy, world, delays.Geometric(mean=20), horizon=400)
    assert trace.regret[-1] - trace.regret[-100] < trace.regret[100]
    assert 0.005 <= trace.propensities.min() < trace.propensities.max() < 1.0


def test_it_decides_in_a_bandit() -> None:
    """And learns."""
    bandit = Bandit(policy=Softmax(2, Bernoulli()), rewards=Explicit(timedelta(days=1)), seed=1)
    for _ in range(100):
        decision = bandit.decide(rows=np.eye(2))
        bandit.observe(decision.id, float(decision.index))
    assert bandit.estimate.theta[1] > bandit.estimate.theta[0]
    assert bandit.decide(rows=np.eye(2)).propensity != 0.5


def test_it_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, with its settings."""
    pytest.importorskip("joblib")
    output = Command("compare").said(
        capsys, "--policy", "DelayedUCB", "Softmax(temperature=0.2)", "--delay", "Constant(3)",
        "--rounds", 40, "--seeds", 2, "--jobs", 1, "--json",
    )  # fmt: skip
    results = json.loads(output)["results"]
    assert [result["policy"] for result in results] == ["DelayedUCB", "Softmax(temperature=0.2)"]


def test_it_is_served() -> None:
    """From the file of a service: a learner publishes its model, and a decider chooses with it."""
    (offers,) = parse_config(SERVED.format("Softmax")).bandits
    assert offers.policy == Softmax(3, Bernoulli(), temperature=0.5)
    source = LoadedModel(offers.policy)
    decider = Decider(offers.policy, source, partitions=1)
    model = Learner(offers.policy).model
    published = PublishedModel.of(model, offers.policy, positions=[0], version=1, at=5)
    source.load(published, decider.unapplied)
    rows, rng = np.tile(np.eye(3, dtype=np.float32), (2, 1)), np.random.default_rng(1)
    decisions = decider.choose([ParsedRequest(3)] * 2, rows, now=5, rng=rng, hold=True).decisions
    assert [decision.propensity for decision in decisions] == [1 / 3, 1 / 3]
    assert decider.model.pending == 2


def test_what_is_not_registered_is_not_known() -> None:
    """The message lists what is."""
    del POLICY_NAMES["Softmax"]
    with pytest.raises(InvalidInput, match=r"unknown name Softmax .known: .*BlindThompson"):
        as_policy("Softmax")


def test_a_function_may_make_it() -> None:
    """Settings of another policy under a name of their own."""

    @register
    def bold(dim: int, family: Any) -> Policy:
        return DelayedUCB(dim, family, alpha=3.0)

    assert as_whole_policy("bold(2, Bernoulli)") == DelayedUCB(2, Bernoulli(), alpha=3.0)
    assert "bold" in POLICIES.known


def test_a_name_is_that_of_one_policy() -> None:
    """To register the same again is nothing; another of its name is refused."""
    assert register(Softmax) is Softmax
    for variant in (type("Softmax", (DelayedUCB,), {}), type("DelayedUCB", (DelayedUCB,), {})):
        variant.__module__ = "shop.other"
        with pytest.raises(InvalidInput, match="has the same name: rename one of them"):
            register(variant)
    assert POLICY_NAMES["Softmax"] is Softmax


@pytest.mark.parametrize("wrong", [Policy, Learner, lambda dim, family: None, "Softmax"])
def test_what_makes_no_policies_is_not_registered(wrong: Any) -> None:
    """It says what was expected."""
    with pytest.raises(InvalidInput, match="expected a Policy subclass or a function"):
        register(wrong)


def test_a_module_is_loaded_by_its_name(shop: str) -> None:
    """A file may name it once, and policies from it in any bandit."""
    text = SERVED.format("Second")
    with pytest.raises(InvalidConfig, match="unknown name Second"):
        parse_config(text)
    config = parse_config(f'policies = ["{shop}"]\n{text}')
    assert config.policies == (shop,)
    assert type(config.bandits[0].policy).__name__ == "Second"
    load_modules([shop, "shop"])  # again, and the package that it is in


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('"shop.policies"', "expected a list of modules in quotes, got 'shop.policies'"),
        ("[3]", "expected a string in quotes, got 3"),
        ('["no.such"]', "the module 'no.such' cannot be imported (ModuleNotFoundError: "),
        ('["json"]', "the module 'json' registers no policy: decorate one"),
        ('["belated.policies"]', "the module 'belated.policies' registers no policy"),
    ],
)
def test_a_module_that_is_of_no_use_is_named_with_its_line(value: str, why: str) -> None:
    """As any mistake in the file."""
    with pytest.raises(InvalidConfig) as error:
        parse_config(f"policies = {value}\n" + SERVED.format("Softmax"))
    (mistake,) = error.value.mistakes
    assert mistake.startswith(f"belated.toml, line 1: policies: {why}")


def test_commands_import_the_modules_they_are_given(shop: str) -> None:
    """Also in the processes that a sweep starts."""
    pytest.importorskip("joblib")
    for command in ("simulate", "compare"):
        arguments = ["--jobs", "2"] if command == "compare" else []
        words = [
            sys.executable, "-m", "belated", command, "--module", shop, "--policy", "Second",
            "--delay", "Constant(3)", "--rounds", "20", "--seeds", "3", "--json", *arguments,
        ]  # fmt: skip
        process = subprocess.run(words, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        assert "Second" in process.stdout


def test_what_was_written_can_be_sent_to_other_processes() -> None:
    """With what makes the policy; what is not in the text stays."""
    policy = as_policy("Warmup(then=Softmax(temperature=0.2), rounds=5)")
    assert policy.needs == (Softmax,)
    pickled = pickle.dumps(policy)
    del POLICY_NAMES["Softmax"]
    assert pickle.loads(pickled)(environments.fixed(0)).dim == 10
    assert as_policy("DelayedUCB").needs == ()


def test_a_module_that_cannot_be_imported_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With its name, and why."""
    complaint = Command("simulate").complaint
    message = complaint(capsys, "--delay", "Constant(3)", "--module", "no.such")
    assert "the module 'no.such' cannot be imported" in message
