r"""Bounds on the regret of the paper's DUCB (Algorithm 1) and DTS (Algorithms 2 and 3).

Regret is the loss relative to always choosing the best action, summed over the horizon; for DTS, it
is averaged over the prior. Every theorem is one inequality, :func:`regret_ucb` or
:func:`regret_bayes`, with a bound on the missing rewards. The paper takes the root of each term of
that bound separately, as do :func:`regret_theorem` and :func:`regret_bayes_theorem`. Therefore,
``regret_ucb`` with ``bounds_for(delay, ...).best_maximum`` is always smaller.

The results show how regret grows, not how large it is: for logistic rewards, they exceed the
horizon until about 10⁶ rounds or more. The "universal" constant in the paper's τ depends on the
delay and the noise, so τ is an argument here; see :func:`~belated.theory.warmup_chernoff`.

The theorems require rewards that are independent of their delays, uniform exploration whose rows
have an invertible second moment (Assumption 1), and a warm-up after which λ_min(W) is at least
:func:`~belated.theory.threshold`. The paper bounds \|θ̂ - θ*\| by 1 in one round, but its proof
requires this in all rounds; with that threshold, it follows from the width for all rounds, up to
horizons beyond 10¹³.

For DTS, the mean reward must have a minimum slope κ > 0 on the whole support of the prior; the
paper requires this only around the true θ. A Gaussian prior with a logistic link has no minimum
slope, so the theorems do not apply to it. A setting with ``norm_bound=S`` is for priors on
\|θ\| ≤ S.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from belated.core.inputs import as_dim, as_nonnegative, as_positive, as_probability, must_be
from belated.delays import Parameters
from belated.delays.process import as_rounds, set_checked
from belated.exceptions import InvalidInput
from belated.model.families import Family
from belated.theory.confidence import max_slope, min_slope, noise, width_paper
from belated.theory.missing import markov_terms, missing_bounded, prop1_terms, random_terms

#: Assumptions on delays; see :func:`regret_theorem`.
Assumption = Literal["independent", "iid", "bounded", "markov", "random"]

#: Parameters of a delay that the theorem for each assumption requires.
NEEDED: dict[Assumption, tuple[str, ...]] = {
    "independent": ("mu", "M", "sigma", "q"),
    "iid": ("mu", "sigma", "q"),
    "bounded": ("bound",),
    "markov": ("mu", "spectral"),
    "random": ("mu", "sigma_r", "q_r"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    r"""The constants of a problem in the theorems on regret; rows have norm at most 1.

    Args:
        horizon: T, the number of rounds, which must exceed the number of features.
        dim: d, the number of features.
        sigma: σ̂, for which a reward is sub-Gaussian around its mean.
        kappa: κ, the minimum slope of the mean; see :func:`~belated.theory.min_slope`.
        max_slope: L_g, the maximum slope of the mean.
        span: Maximum loss per round. It is 1 for the paper's rewards in [0, 1]; it may be greater
            for linear rewards, to which the paper applies the same theorems.

    >>> from belated import Bernoulli
    >>> Setting.of(Bernoulli(), horizon=10_000, dim=10, norm_bound=3.0)
    Setting(horizon=10000, dim=10, sigma=0.5, kappa=0.0177, max_slope=0.25, span=1.0)
    """

    horizon: int
    dim: int
    sigma: float
    kappa: float
    max_slope: float
    span: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", as_rounds(self.horizon, "horizon", least=1))
        object.__setattr__(self, "dim", as_dim(self.dim))
        set_checked(self, as_positive, "sigma", "kappa", "max_slope", "span")
        if self.horizon <= self.dim:
            raise must_be("horizon", f"above the number of features, {self.dim}", self.horizon)

    @classmethod
    def of(cls, family: Family, *, horizon: int, dim: int, norm_bound: float) -> Setting:
        r"""Return the constants for a family and \|θ*\| ≤ S.

        For Poisson rewards, which are not sub-Gaussian, the results are only approximate.

        Args:
            family: Family of the rewards.
            horizon: T, the number of rounds.
            dim: d, the number of features.
            norm_bound: S, at least \|θ*\|.
        """
        kappa = min_slope(family, norm_bound)
        low, high = family.mean(np.array([-norm_bound, norm_bound]))
        bounded = family.support.upper - family.support.lower
        return cls(
            horizon=horizon,
            dim=dim,
            sigma=noise(family, norm_bound),
            kappa=kappa,
            max_slope=max_slope(family, norm_bound),
            span=bounded if np.isfinite(bounded) else float(high - low),
        )


def regret_ucb(setting: Setting, *, missing: float, warmup: float, delta: float) -> float:
    r"""Bound the regret of DUCB, given a bound on the missing rewards.

    The bound is τ + L_g (2√G* √(2Td log(T/d)) + (2dσ̂/κ) log(T/(dδ)) √T), the inequality behind all
    theorems. It holds with probability 1 - 5δ, or 1 - 3δ if the bound on missing rewards never
    fails.

    The last step of the proof, which leads to the term with log(T/(dδ)), fails for d = 1 unless δ
    is small, and for more features if δ is near 1. Therefore, the greater of that term and the
    preceding term is used.

    Args:
        setting: Constants of the problem.
        missing: Bound on G*_T that holds with probability 1 - δ, from a ``missing_*`` function with
            a horizon.
        warmup: τ, the number of rounds of uniform exploration; each costs at most ``setting.span``.
        delta: δ.

    >>> from belated import Bernoulli
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_ucb(setting, missing=172.3, warmup=95_466, delta=0.05) / setting.horizon
    0.0583
    """
    return _total(setting, [as_nonnegative(missing, "missing")], warmup, delta)


def regret_expected(setting: Setting, *, missing: float, warmup: float) -> float:
    r"""Bound the expected regret of DUCB (Corollary 1): :func:`regret_ucb` at δ = 1/T, plus 5.

    The bound fails with probability at most 5/T, and all rounds then cost at most T in total. To
    state Corollary 1 in the terms of a theorem, add 5 to that theorem at δ = 1/T.

    Args:
        setting: Constants of the problem.
        missing: Bound on G*_T that holds with probability 1 - 1/T.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_expected(setting, missing=197.4, warmup=206_400) / setting.horizon
    0.0969
    """
    regret = regret_ucb(setting, missing=missing, warmup=warmup, delta=1.0 / setting.horizon)
    return regret + 5.0 * setting.span


def regret_theorem(
    assumption: Assumption, setting: Setting, delay: Parameters, *, warmup: float, delta: float
) -> float:
    r"""Bound the regret of DUCB by the paper's theorem for an assumption, with probability 1 - 5δ.

    - ``independent`` (Theorem 1) assumes the tail of Assumption 2. The theorem states a width with
      G_t, whereas the algorithm and the proof use √G_t, as here.
    - ``iid`` (Proposition 2.2) is Theorem 1 with the mean delay for μ + M. The rate in the paper's
      introduction contains the mean instead of its root. The mean is counted twice, although on
      average no more rewards are missing than the mean delay; :func:`regret_ucb` with
      :func:`~belated.theory.missing_bennett` makes use of this.
    - ``bounded`` (Proposition 2.1) holds with probability 1 - 3δ. The rate at the end of the proof
      contains D_max, whereas its last inequality contains √D_max.
    - ``markov`` (Theorem 3) assumes a stationary chain with a spectral gap and a finite mean. The
      rate after the theorem contains μ, whereas the theorem contains its fourth root.
    - ``random``, any dependence (Theorem 5), assumes one distribution with a tail lighter than
      Gaussian (Assumption 4). The theorem contains C₃, which belongs to Theorem 1; its proof
      contains C₄ = 2σ_R² + 1, which is used here. The mean is rounded up, as in
      :func:`~belated.theory.missing_random`.

    Args:
        assumption: Assumption on the delays.
        setting: Constants of the problem.
        delay: Parameters of the delays; :data:`NEEDED` lists those that each assumption requires.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Batched, Geometric, LazyMarkov, Uniform
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law, chain = Geometric(mean=100), LazyMarkov(0.5, base=Geometric(mean=20))
    >>> for assumption, delay in (
    ...     ("independent", law), ("iid", law), ("bounded", Batched(1000)),
    ...     ("markov", chain), ("random", Uniform(10)),
    ... ):
    ...     regret = regret_theorem(assumption, setting, delay.params(), warmup=95_466, delta=0.05)
    ...     print(assumption, round(regret / setting.horizon, 3))
    independent 0.107
    iid 0.107
    bounded 0.075
    markov 0.07
    random 0.07
    """
    return _total(setting, _terms(assumption, delay, setting.horizon, delta), warmup, delta)


def regret_bayes(setting: Setting, *, missing: float, warmup: float) -> float:
    r"""Bound the regret of DTS over its prior, given a bound on the expected missing rewards.

    The bound is τ + 2 + 2L_g (β + √E G*) √(2Td log(T/d)), where β is the width without delay at T
    rewards and δ = 1/T. The term 2 accounts for the two steps in which θ* may lie outside its
    confidence set; the paper's proof ignores other failures, such as a failed warm-up.

    The proof states E √G* ≤ √(E √G*) where it requires √(E G*), which is used here. Its confidence
    set is a ball in W that is used as a ball in V, which is valid after a warm-up to
    :func:`~belated.theory.threshold`.

    Args:
        setting: Constants of the problem, with κ for the support of the prior.
        missing: Bound on E G*_T. A bound b on G*_T that holds with probability 1 - 1/T gives b + 1,
            because at most T rewards are missing if it fails.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_bayes(setting, missing=198.4, warmup=206_400) / setting.horizon
    0.0580
    """
    return _total_bayes(setting, [as_nonnegative(missing, "missing")], warmup)


def regret_bayes_theorem(
    assumption: Assumption, setting: Setting, delay: Parameters, *, warmup: float
) -> float:
    r"""Bound the regret of DTS over its prior by the paper's theorem for an assumption.

    ``independent`` is Theorem 2, ``iid`` Corollary 2.2, ``bounded`` Corollary 2.1, ``markov``
    Theorem 4 and ``random`` Theorem 6, under the assumptions of :func:`regret_theorem`. The paper
    states only rates; the constants here are from its proofs, at δ = 1/T. A bound on missing
    rewards that fails with probability 1/T adds 1, because at most T rewards are missing; the bound
    for ``bounded`` never fails.

    Args:
        assumption: Assumption on the delays.
        setting: Constants of the problem, with κ for the support of the prior.
        delay: Parameters of the delays; :data:`NEEDED` lists those that each assumption requires.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_bayes_theorem("independent", setting, law, warmup=206_400) / setting.horizon
    0.1065
    """
    *terms, last = _terms(assumption, delay, setting.horizon, 1.0 / setting.horizon)
    return _total_bayes(setting, [*terms, last + (assumption != "bounded")], warmup)


def _terms(
    assumption: Assumption, delay: Parameters, horizon: int, delta: float
) -> tuple[float, ...]:
    """Return the terms of a bound on missing rewards; the theorems contain the root of each."""
    numbers = [getattr(delay, name) for name in NEEDED[assumption]]
    if None in numbers:
        message = (
            f"{NEEDED[assumption][numbers.index(None)]} of the delay is None: the theorem's"
            " assumption does not hold or is not known to hold, so use regret_ucb with"
            " bounds_for(delay, ...).best_maximum"
        )
        raise InvalidInput(message, delay)
    match assumption:
        case "independent":
            return prop1_terms(*numbers, horizon=horizon, delta=delta)  # equation (16)
        case "iid":
            mu, sigma, q = numbers
            return prop1_terms(mu, 0.0, sigma, q, horizon=horizon, delta=delta)
        case "bounded":
            return (missing_bounded(*numbers),)  # equation (18)
        case "markov":
            return markov_terms(*numbers, horizon=horizon, delta=delta)  # equation (25)
        case "random":
            return random_terms(*numbers, horizon=horizon, delta=delta)  # equation (29)


def _potential(setting: Setting) -> float:
    """Return √(2Td log(T/d)), a bound on the sum of deviations over all choices (41)."""
    rounds, dim = setting.horizon, setting.dim
    return math.sqrt(2.0 * rounds * dim * math.log(rounds / dim))


def _total(setting: Setting, parts: Iterable[float], warmup: float, delta: float) -> float:
    """Return the bound (42), with the root of each term of the bound on missing rewards."""
    waiting = 2.0 * _potential(setting) * math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup")
    return rounds * setting.span + setting.max_slope * (waiting + _learning(setting, delta))


def _learning(setting: Setting, delta: float) -> float:
    """Return the regret without delays."""
    T, d = setting.horizon, setting.dim
    log = math.log(T / (d * as_probability(delta, "delta")))
    stated = 2.0 * d * setting.sigma / setting.kappa * log * math.sqrt(T)
    width = width_paper(T, 0.0, d, delta=delta, sigma=setting.sigma, kappa=setting.kappa)
    # The last step of (42) fails for d = 1, and for d ≥ 2 if δ is near 1.
    return max(stated, 2.0 * width * _potential(setting))


def _total_bayes(setting: Setting, parts: Iterable[float], warmup: float) -> float:
    """Return the bound from (49), with the root of each term of the bound on missing rewards."""
    T = setting.horizon
    width = width_paper(
        T, 0.0, setting.dim, delta=1.0 / T, sigma=setting.sigma, kappa=setting.kappa
    )
    roots = math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup") + 2.0
    return rounds * setting.span + 2.0 * setting.max_slope * (width + roots) * _potential(setting)
