r"""What the paper's DUCB (Algorithm 1) and DTS (Algorithms 2 and 3) can cost, by its theorems.

Regret is what choosing costs against always choosing the best action, summed over the horizon; that
of DTS is averaged over its prior. Every theorem is one inequality, :func:`regret_ucb` or
:func:`regret_bayes`, with a bound on the missing rewards put in. The paper then takes the root of
each term of that bound apart: :func:`regret_theorem` and :func:`regret_bayes_theorem`. That is why
``regret_ucb`` with a bound of your choice is always the smaller number: take it with
``bounds_for(delay, ...).best_maximum``.

The numbers say how regret grows, not how large it is: for logistic rewards they exceed the horizon
until about 10⁶ rounds or more. The "universal" constant in the paper's τ depends on the delay and
the noise, so that τ is an argument here: :func:`~belated.theory.warmup_chernoff`.

The theorems need rewards that say nothing of their delay, rows of uniform exploration with a
regular second moment (Assumption 1), and a warm-up after which λ_min(W) is at least
:func:`~belated.theory.threshold`. The paper bounds \|θ̂ - θ*\| by 1 in one round where its proof
needs all rounds; with that threshold it follows for all of them from the width, up to horizons
beyond 10¹³.

For DTS the mean of rewards must have a least slope κ > 0 on the whole support of the prior; the
paper asks for it around the truth only. A Gaussian prior with a logistic link has none, so that
nothing follows for it: a setting with ``norm_bound=S`` is for priors on \|θ\| ≤ S.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from belated.core.inputs import as_dim, as_nonnegative, as_positive, as_probability
from belated.delays import Parameters
from belated.delays.process import as_rounds, set_checked
from belated.exceptions import InvalidInput
from belated.model.families import Family
from belated.theory.confidence import greatest_slope, least_slope, noise, width_paper
from belated.theory.missing import markov_terms, missing_bounded, prop1_terms, random_terms

#: What a theorem assumes of delays, as :func:`regret_theorem` lists them.
Assumption = Literal["independent", "iid", "bounded", "markov", "random"]

#: The parameters of a delay that the theorem of each assumption needs.
NEEDED: dict[Assumption, tuple[str, ...]] = {
    "independent": ("mu", "M", "sigma", "q"),
    "iid": ("mu", "sigma", "q"),
    "bounded": ("bound",),
    "markov": ("mu", "spectral"),
    "random": ("mu", "sigma_r", "q_r"),
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    r"""A problem as the theorems on regret see it: rows of length at most 1, and rewards.

    Args:
        horizon: T, more rounds than features.
        dim: d, the number of features.
        sigma: σ̂, by which a reward is sub-Gaussian around its mean.
        kappa: κ, the least slope of the mean, see :func:`~belated.theory.least_slope`.
        steepest: L_g, its greatest slope.
        span: the most that one round can cost. The paper's rewards are in [0, 1], so that it is 1;
            linear rewards, which the paper treats with the same theorems, need not be.

    >>> from belated import Bernoulli
    >>> Setting.of(Bernoulli(), horizon=10_000, dim=10, norm_bound=3.0)
    Setting(horizon=10000, dim=10, sigma=0.5, kappa=0.0177, steepest=0.25, span=1.0)
    """

    horizon: int
    dim: int
    sigma: float
    kappa: float
    steepest: float
    span: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", as_rounds(self.horizon, "horizon", least=1))
        object.__setattr__(self, "dim", as_dim(self.dim))
        set_checked(self, as_positive, "sigma", "kappa", "steepest", "span")
        if self.horizon <= self.dim:
            message = f"horizon is {self.horizon}: more rounds than the {self.dim} features"
            raise InvalidInput(f"{message} were expected", self.horizon)

    @classmethod
    def of(cls, family: Family, *, horizon: int, dim: int, norm_bound: float) -> Setting:
        r"""The constants of a family, for \|θ*\| ≤ S.

        For Poisson rewards, which are not sub-Gaussian, what follows is a rule of thumb.

        Args:
            family: of the rewards.
            horizon: T, the number of rounds.
            dim: d, the number of features.
            norm_bound: S, at least \|θ*\|.
        """
        kappa = least_slope(family, norm_bound)
        low, high = family.mean(np.array([-norm_bound, norm_bound]))
        bounded = family.support.upper - family.support.lower
        return cls(
            horizon=horizon,
            dim=dim,
            sigma=noise(family, norm_bound),
            kappa=kappa,
            steepest=greatest_slope(family, norm_bound),
            span=bounded if np.isfinite(bounded) else float(high - low),
        )


def regret_ucb(setting: Setting, *, missing: float, warmup: float, delta: float) -> float:
    r"""The regret of DUCB, from any bound on the rewards that are missing.

    τ + L_g (2√G* √(2Td log(T/d)) + (2dσ̂/κ) log(T/(dδ)) √T), the inequality behind all theorems. It
    holds with probability 1 - 5δ, or 1 - 3δ where the bound on missing rewards never fails.

    The last step of the proof, to the term with log(T/(dδ)), fails for d = 1 unless δ is small, and
    for more features where δ is near 1; the greater of that term and the one before the step is
    taken.

    Args:
        setting: the problem.
        missing: a bound on G*_T that holds with probability 1 - δ, a ``missing_*`` over the
            horizon.
        warmup: τ, the rounds of uniform exploration; each costs at most ``setting.span``.
        delta: δ.

    >>> from belated import Bernoulli
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_ucb(setting, missing=172.3, warmup=95_466, delta=0.05) / setting.horizon
    0.0583
    """
    return _total(setting, [as_nonnegative(missing, "missing")], warmup, delta)


def regret_expected(setting: Setting, *, missing: float, warmup: float) -> float:
    r"""The regret of DUCB on average (Corollary 1): :func:`regret_ucb` at δ = 1/T, and 5 more.

    With probability 5/T at most the bound fails, and then all rounds together cost T at most. To
    have Corollary 1 in the terms of a theorem, add 5 to that theorem at δ = 1/T.

    Args:
        setting: the problem.
        missing: a bound on G*_T that holds with probability 1 - 1/T.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_expected(setting, missing=197.4, warmup=206_400) / setting.horizon
    0.0969
    """
    certain = regret_ucb(setting, missing=missing, warmup=warmup, delta=1.0 / setting.horizon)
    return certain + 5.0 * setting.span


def regret_theorem(
    assumption: Assumption, setting: Setting, delay: Parameters, *, warmup: float, delta: float
) -> float:
    r"""The regret of DUCB by the paper's theorem for delays of a kind, with probability 1 - 5δ.

    - ``independent`` (Theorem 1) assumes the tail of Assumption 2. The theorem prints a width with
      G_t where the algorithm and the proof have √G_t; the roots in this bound are those of the
      latter.
    - ``iid`` (Proposition 2.2) is Theorem 1 with the mean delay for μ + M. The introduction of the
      paper has the mean in its rate where this has its root. The mean is counted twice, although no
      more are missing on average than the mean says: :func:`regret_ucb` with
      :func:`~belated.theory.missing_bennett` uses that.
    - ``bounded`` (Proposition 2.1) holds with 1 - 3δ. The proof ends with a rate that has D_max
      where its last inequality has √D_max, as here.
    - ``markov`` (Theorem 3) assumes a stationary chain with a spectral gap and a finite mean. The
      rate that follows the theorem has μ where the theorem itself has its fourth root.
    - ``random``, any dependence (Theorem 5), assumes one law with a tail lighter than Gaussian
      (Assumption 4). The theorem prints C₃, which belongs to Theorem 1; its proof has
      C₄ = 2σ_R² + 1, as here. The mean is rounded up, as in
      :func:`~belated.theory.missing_random`.

    Args:
        assumption: on the delays.
        setting: the problem.
        delay: what is known of the delays; :data:`NEEDED` lists what each assumption needs.
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
    r"""The regret of DTS over its prior, from a bound on the rewards that are missing on average.

    τ + 2 + 2L_g (β + √E G*) √(2Td log(T/d)), with β the width without delay at T rewards and
    δ = 1/T. The 2 is for the two places where the truth may lie outside its confidence set; the
    paper's proof counts no others, such as a warm-up that fails.

    Where the proof writes E √G* ≤ √(E √G*) it needs, and this has, √(E G*). Its confidence set is
    a ball in W but used as one in V, which is right after a warm-up to
    :func:`~belated.theory.threshold`.

    Args:
        setting: the problem, with κ for the support of the prior.
        missing: a bound on E G*_T. A bound b on G*_T that holds with probability 1 - 1/T gives
            b + 1, since no more than T can be missing where it fails.
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
    r"""The regret of DTS over its prior by the paper's theorem for delays of a kind.

    ``independent`` is Theorem 2, ``iid`` Corollary 2.2, ``bounded`` Corollary 2.1, ``markov``
    Theorem 4 and ``random`` Theorem 6, under the assumptions of :func:`regret_theorem`. The paper
    states them by their rates; the constants here are those of its proofs, at δ = 1/T. A bound on
    missing rewards that fails with probability 1/T adds 1, since no more than T can be missing;
    that of ``bounded`` never fails.

    Args:
        assumption: on the delays.
        setting: the problem, with κ for the support of the prior.
        delay: what is known of the delays; :data:`NEEDED` lists what each assumption needs.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_bayes_theorem("independent", setting, law, warmup=206_400) / setting.horizon
    0.1065
    """
    *others, last = _terms(assumption, delay, setting.horizon, 1.0 / setting.horizon)
    return _total_bayes(setting, [*others, last + (assumption != "bounded")], warmup)


def _terms(
    assumption: Assumption, delay: Parameters, horizon: int, delta: float
) -> tuple[float, ...]:
    """The terms of a bound on the most rewards missing at once; the theorems have their roots."""
    numbers = [getattr(delay, name) for name in NEEDED[assumption]]
    if None in numbers:
        message = (
            f"{NEEDED[assumption][numbers.index(None)]} of the delay is None: the theorem's"
            " assumption does not hold, or is not known to; take regret_ucb with"
            " bounds_for(delay, ...).best_maximum"
        )
        raise InvalidInput(message, delay)
    match assumption:
        case "independent":
            return prop1_terms(*numbers, horizon=horizon, delta=delta)  # (16)
        case "iid":
            mu, sigma, q = numbers
            return prop1_terms(mu, 0.0, sigma, q, horizon=horizon, delta=delta)
        case "bounded":
            return (missing_bounded(*numbers),)  # (18)
        case "markov":
            return markov_terms(*numbers, horizon=horizon, delta=delta)  # (25)
        case "random":
            return random_terms(*numbers, horizon=horizon, delta=delta)  # (29)


def _potential(setting: Setting) -> float:
    """√(2Td log(T/d)), a bound on the sum of the deviations of all choices (41)."""
    rounds, dim = setting.horizon, setting.dim
    return math.sqrt(2.0 * rounds * dim * math.log(rounds / dim))


def _total(setting: Setting, parts: Iterable[float], warmup: float, delta: float) -> float:
    """The inequality (42), with a root for each term of the bound on missing rewards."""
    waiting = 2.0 * _potential(setting) * math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup")
    return rounds * setting.span + setting.steepest * (waiting + _learning(setting, delta))


def _learning(setting: Setting, delta: float) -> float:
    """What would be lost without delays."""
    T, d = setting.horizon, setting.dim
    log = math.log(T / (d * as_probability(delta, "delta")))
    stated = 2.0 * d * setting.sigma / setting.kappa * log * math.sqrt(T)
    width = width_paper(T, 0.0, d, delta=delta, sigma=setting.sigma, kappa=setting.kappa)
    # The last step of (42) fails for d = 1, and for d ≥ 2 where δ is near 1.
    return max(stated, 2.0 * width * _potential(setting))


def _total_bayes(setting: Setting, parts: Iterable[float], warmup: float) -> float:
    """What follows from (49), with a root for each term of the bound on missing rewards."""
    T = setting.horizon
    width = width_paper(
        T, 0.0, setting.dim, delta=1.0 / T, sigma=setting.sigma, kappa=setting.kappa
    )
    roots = math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup") + 2.0
    return rounds * setting.span + 2.0 * setting.steepest * (width + roots) * _potential(setting)
