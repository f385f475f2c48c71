"""Policies, delays and the like as they are written in a command or a file."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from belated import (
    Bernoulli,
    DefaultAfter,
    Explicit,
    Gaussian,
    Hashed,
    PerArm,
    Shared,
    delays,
    environments,
)
from belated.exceptions import InvalidInput
from belated.expressions import (
    DELAYS,
    ENVIRONMENTS,
    FEATURES,
    POLICIES,
    REWARDS,
    WHOLE_POLICIES,
    Kind,
    as_delay,
    as_environment,
    as_features,
    as_policy,
    as_semantics,
    as_whole_policy,
    label,
)
from belated.model.estimators import Online
from belated.policies import DelayedUCB, Warmup

READ = {
    DELAYS.example: as_delay,
    POLICIES.example: as_policy,
    ENVIRONMENTS.example: as_environment,
    WHOLE_POLICIES.example: as_whole_policy,
    REWARDS.example: as_semantics,
    FEATURES.example: as_features,
}


def refusal(kind: Kind[Any], text: str) -> str:
    """Return why a text is refused; the known names follow only if a name was expected."""
    with pytest.raises(InvalidInput) as error:
        READ[kind.example](text)
    message = str(error.value)
    assert f" is not a valid {kind.noun}: " in message
    assert error.value.value == text
    reason, _, suffix = message.partition(": ")[2].partition(" (known: ")
    expects_name = "name" in reason or reason == "it is not a Python expression"
    assert suffix == (f"{kind.known}; example: {kind.example})" if expects_name else "")
    return reason


class TestDelays:
    @pytest.mark.parametrize(
        "process",
        [
            delays.Constant(3),
            delays.Uniform(9),
            delays.Geometric(mean=100.0),
            delays.Exponential(mean=20.0),
            delays.Weibull(shape=2.0, scale=40.0),
            delays.HalfNormal(scale=10.0),
            delays.Lomax(shape=1.2, scale=100.0),
            delays.Mixture(never=0.3, base=delays.Geometric(mean=100.0)),
            delays.LazyMarkov(0.8, base=delays.Geometric(mean=20.0)),
            delays.BlockDependent(delays.Uniform(9), length=3),
            delays.Batched(500, offset=20),
            delays.RewardDependent(
                zero_law=delays.Constant(delays.NEVER), one_law=delays.Geometric(mean=4.0)
            ),
        ],
        ids=lambda process: type(process).__name__,
    )
    def test_what_a_delay_calls_itself_gives_it_back(self, process: delays.DelayProcess) -> None:
        """Whatever its repr is, that can be written."""
        assert as_delay(repr(process)) == process

    def test_lists_and_names_can_stand_inside(self) -> None:
        """Samples, transitions, laws for each regime, and NEVER."""
        rng = np.random.default_rng
        empirical = as_delay("Empirical([0, 0, 2, 5.5, NEVER])")
        assert empirical.tail([1, 7]).tolist() == [0.6, 0.2]
        chain = as_delay("FiniteChain([[0.9, 0.1], [0.5, 0.5]], values=[0, 100])")
        assert set(chain.sample(200, rng(0)).tolist()) == {0, 100}
        regimes = "RegimeSwitch([[0.9, 0.1], (0.5, 0.5)], laws=[Constant(0), Geometric(mean=9)])"
        assert as_delay(regimes).mean == pytest.approx(1.5)

    def test_every_name_is_a_delay(self) -> None:
        """What cannot be written is not offered: abstract ones, and functions of the row."""
        assert {"Geometric", "Lomax", "Mixture", "Batched"} <= set(DELAYS.names)
        assert not {"Law", "Independent", "DelayProcess", "Parameters"} & set(DELAYS.names)
        assert "unknown name ContextDependent" in refusal(DELAYS, "ContextDependent(rate=1)")

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("Geometic(mean=100)", "unknown name Geometic; did you mean Geometric?"),
            ("nothing", "unknown name nothing"),
            ("expected_missing(1)", "unknown name expected_missing"),
            ("Geometric", "missing a required argument: 'mean'; it takes mean"),
            ("Geometric(men=100)", "Geometric has no argument men; it takes mean"),
            ("Geometric(100)", "it takes mean"),
            ("Geometric(mean=1, mean=2)", "the argument mean is repeated"),
            ("Geometric(mean=-100)", "`mean` must be a finite number above 0, got -100"),
            ("Geometric(mean=1e999)", "is not a number"),
            ("Geometric(mean='x')", "`mean` must be a number above 0, got 'x'"),
            ("Mixture(never=0.3)", "'base'; it takes never, base"),
            (
                "Mixture(never=0.3, base=5)",
                "`base` must be a distribution with a quantile function",
            ),
            ("Mixture(never=2, base=Constant(1))", "less than 1, got 2"),
            ("Mixture(never=0.3, base=DelayedUCB())", "unknown name DelayedUCB"),
            ("Lomax(shape=1.2, scale=100", "it is not a Python expression"),
            ("", "it is not a Python expression"),
            ("100", "expected a name with arguments"),
            ("NEVER", "unknown name NEVER"),
            ("NEVER()", "unknown name NEVER"),
            ("Constant(NEVER())", "unknown name NEVER"),
            ("Constant(2**62)", "2 ** 62 is not a number"),
            ("Constant({1: 2})", "the keys of a mapping must be strings"),
            ("Constant({'a': 2, 'a': 3})", "the key 'a' is repeated"),
            ("Constant({**{}})", "the keys of a mapping must be strings"),
            ("Constant(b'x')", "is not a number"),
            ("Constant(*[1])", "*[1] is not a number"),
            ("Geometric(**{'mean': 1})", "** is not supported"),
            ("Constant(\0)", "it is not a Python expression"),
        ],
    )
    def test_a_bad_one_is_refused(self, text: str, why: str) -> None:
        """The reason is told, with all names and an example."""
        assert why in refusal(DELAYS, text)

    @pytest.mark.parametrize(
        "text",
        [
            "__import__('os').system('touch {}')",
            "__import__('os')",
            "open('{}', 'w')",
            'exec(\'open("{}", "w")\')',
            "Constant(__import__('os').system('touch {}'))",
            "Constant([open('{}', 'w') for _ in [1]])",
            "Constant((lambda: open('{}', 'w'))())",
            "Constant(c=(x := open('{}', 'w')))",
            'Constant(f\'{{open("{}", "w")}}\')',
            "Constant.__init__.__globals__['__builtins__']['open']('{}', 'w')",
            "Geometric(mean=Constant(1).__class__)",
            "delays.Constant(1)",
            "Constant(1) if open('{}', 'w') else 2",
            "Constant(1); open('{}', 'w')",
            "import os",
        ],
    )
    def test_nothing_is_ever_run(self, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
        """Whatever is written, only known names are called."""
        file = tmp_path_factory.mktemp("run") / "made"
        refusal(DELAYS, text.replace("{}", str(file)))
        assert not file.exists()

    def test_depth_is_refused_and_not_a_crash(self) -> None:
        """Thousands of brackets, with or without names."""
        for text in ("(" * 5_000, "Constant(" * 300 + "1" + ")" * 300, "[" * 150 + "]" * 150):
            refusal(DELAYS, text)

    def test_a_long_text_is_quoted_in_part(self) -> None:
        """An error stays readable."""
        with pytest.raises(
            InvalidInput, match=r"^'Empirical\(\[1, 1, .{0,50}…' is not a valid delay"
        ):
            as_delay(f"Empirical([{'1, ' * 5_000}-1])")


class TestPolicies:
    def test_dim_and_family_come_from_the_environment(self) -> None:
        """The rest is as written; without brackets all is as by default."""
        world = environments.fixed(0, dim=3, family=Gaussian())
        assert as_policy("DelayedUCB")(world) == DelayedUCB(3, Gaussian())
        assert as_policy("DelayedUCB(alpha=0.5, metric='gram', randomized=True)")(
            world
        ) == DelayedUCB(3, Gaussian(), alpha=0.5, metric="gram", randomized=True)

    def test_every_name_makes_a_policy(self) -> None:
        """Those of the paper too."""
        world = environments.fixed(0)
        arguments = {
            "paper_ducb": "(norm_bound=3)",
            "Warmup": "(then=DelayedUCB(alpha=1), rounds=5)",
        }
        for name in POLICIES.names:
            assert as_policy(name + arguments.get(name, ""))(world).dim == world.dim

    def test_policies_nest(self) -> None:
        """The inner one has the environment's dim and family too."""
        policy = as_policy("Warmup(then=BlindUCB, rounds=100)")(environments.arms(0))
        assert isinstance(policy, Warmup)
        assert (policy.then.dim, policy.then.family) == (50, Bernoulli())

    def test_can_be_sent_to_other_processes(self) -> None:
        """As a sweep does."""
        for factory in (as_policy("DelayedUCB(alpha=0.5)"), as_environment("fixed(dim=5)")):
            assert repr(pickle.loads(pickle.dumps(factory))) == repr(factory)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("DelayedUBC", "unknown name DelayedUBC; did you mean DelayedUCB?"),
            ("Geometric(mean=100)", "unknown name Geometric"),
            ("Policy()", "unknown name Policy"),
            ("DelayedUCB(0.5)", "arguments must be passed by keyword"),
            ("DelayedUCB(dim=3)", "dim must not be set here: it comes from the environment"),
            ("DelayedUCB(family=None)", "it comes from the environment"),
            ("DelayedUCB(estimator=3)", "it cannot be written on a command line"),
            ("DelayedUCB(alpha=-1)", "`alpha` must be a finite number of at least 0, got -1"),
            ("DelayedUCB(alpha='x')", "`alpha` must be a finite number of at least 0, got 'x'"),
            (
                "DelayedUCB(beta=1)",
                "no argument beta; it takes ridge, pending_weight, metric, floor, half_life,"
                " learn_after, blocks, alpha",
            ),
            ("DelayedUCB(ridge='own')", "ridge"),
            ("paper_ducb", "'norm_bound'; it takes norm_bound, delta, warmup, ridge"),
            ("paper_dts(warmup='long')", "`rounds` must be a whole number of rounds, got 'long'"),
            ("Warmup(then=3)", "`then` must be a policy, got 3"),
            (
                "Warmup(then=Uniform(), arrivals=-1)",
                "`arrivals` must be a number of at least 0",
            ),
            ("WaitForWindow(window=1.5)", "`window` must be a whole number of rounds, got 1.5"),
        ],
    )
    def test_a_bad_one_is_refused(self, text: str, why: str) -> None:
        """Before there is an environment."""
        assert why in refusal(POLICIES, text)


class TestEnvironments:
    def test_made_from_a_seed(self) -> None:
        """By name, or with its own size and family."""
        assert as_environment("users")(3).dim == 10
        world = as_environment("fixed(dim=5, n_arms=8, family=Gaussian(0.25))")(3)
        assert (world.dim, world.family) == (5, Gaussian(0.25))
        expected = environments.fixed(3, dim=5, n_arms=8).theta
        assert isinstance(world, environments.GLM)
        assert world.theta.tolist() == expected.tolist()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("fixd", "unknown name fixd; did you mean fixed?"),
            ("fixed(3)", "arguments must be passed by keyword"),
            ("fixed(seed=3)", "seed must not be set here: it comes from --seeds"),
            ("fixed(arms=3)", "no argument arms; it takes dim, n_arms, norm, family"),
            ("fixed(dim=-1)", "fixed: "),
            ("fixed(n_arms=0)", "it returned no rows"),
            ("users(types=0)", "it returned no rows"),
            ("fixed(family=Cauchy())", "unknown name Cauchy"),
            ("Poisson()", "unknown name Poisson"),
            ("ball(family=Poisson())", "no argument family; it takes dim, n_arms, norm"),
        ],
    )
    def test_a_bad_one_is_refused(self, text: str, why: str) -> None:
        """Also where only the first round shows it."""
        assert why in refusal(ENVIRONMENTS, text)


class TestDefinitions:
    @pytest.mark.parametrize("example", READ)
    def test_every_example_can_be_written(self, example: str) -> None:
        """What a message tells to write is right."""
        READ[example](example)

    def test_a_policy_with_all_it_needs(self) -> None:
        """In order or by name; families and estimators with or without brackets."""
        policy = DelayedUCB(3, Gaussian(0.25), estimator=Online())
        assert as_whole_policy("DelayedUCB(3, Gaussian(0.25), estimator=Online)") == policy
        inner = "DelayedUCB(dim=3, family=Bernoulli)"
        wrapped = as_whole_policy(f"Warmup({inner}, rounds=10)")
        assert isinstance(wrapped, Warmup)
        assert as_whole_policy("paper_ducb(3, Bernoulli(), norm_bound=2.0)").dim == 3

    def test_what_a_policy_calls_itself_gives_it_back(self) -> None:
        """Except for a prior, which cannot be written."""
        policy = DelayedUCB(3, Gaussian("estimate"), alpha=0.5)
        text = repr(policy).replace(" prior=None,", "")
        assert as_whole_policy(text) == policy

    @pytest.mark.parametrize(
        "text", ["Explicit('36h')", "Explicit(window='1d12h')", "Explicit(timedelta(days=1.5))"]
    )
    def test_windows_are_written_as_time_spans(self, text: str) -> None:
        """By place or by name, short or as in Python."""
        assert as_semantics(text) == Explicit(timedelta(hours=36))

    def test_silence_that_means_something(self) -> None:
        """With its value and bounds."""
        expected = DefaultAfter(timedelta(minutes=30), value=0.5, reduce="sum", bounds=(0.0, 9.0))
        text = "DefaultAfter('30m', value=0.5, reduce='sum', bounds=(0, 9))"
        assert as_semantics(text) == expected

    def test_features(self) -> None:
        """All but those of an object that is not ours."""
        assert as_features("PerArm(['a', 7], context=2)") == PerArm(["a", 7], context=2)
        assert as_features("Hashed(64, seed=3)") == Hashed(64, seed=3)
        shared = Shared(context=["age"], action=["price"], interactions=False)
        text = "Shared(context=['age'], action=['price'], interactions=False)"
        assert as_features(text) == shared

    @pytest.mark.parametrize(
        ("kind", "text", "why"),
        [
            (WHOLE_POLICIES, "paper_ducb", "missing a required argument: 'dim'; it takes dim, "),
            (WHOLE_POLICIES, "paper_ducb(2)", "missing a required argument: 'family'"),
            (WHOLE_POLICIES, "DelayedUCB(-1, Bernoulli)", "`dim` must be a positive integer"),
            (WHOLE_POLICIES, "DelayedUCB(2, Laplace)", "`family` is Laplace("),
            (WHOLE_POLICIES, "Bernoulli()", "unknown name Bernoulli"),
            (
                REWARDS,
                "Explicit('7w')",
                "`window` must be a duration, such as 7d, 12h, 30m or 45s, got '7w'",
            ),
            (REWARDS, "Explicit('0d')", "must be a duration above 0"),
            (REWARDS, "Explicit(timedelta(days='x'))", "timedelta: "),
            (REWARDS, "timedelta(days=1)", "unknown name timedelta"),
            (FEATURES, "PerArm([])", "`actions` is []: offer at least one action"),
        ],
    )
    def test_a_bad_one_is_refused(self, kind: Kind[Any], text: str, why: str) -> None:
        """As on a command line."""
        assert why in refusal(kind, text)


def test_one_style_of_labels() -> None:
    """Spaces do not matter, nor do empty brackets; numbers stay as they are."""
    assert label(" Lomax(shape = 1.2,scale=100) ") == "Lomax(shape=1.2, scale=100)"
    assert label("DelayedUCB( )") == label("DelayedUCB") == "DelayedUCB"
    assert label("Empirical([1,2,3])") == "Empirical([1, 2, 3])"
    assert label(f"Empirical([{'7,' * 900}])") == "Empirical([7, 7, 7, 7, 7, 7, … 900 in all])"
