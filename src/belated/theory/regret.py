r"""What the paper's DUCB (Algorithm 1) can cost, by its theorems.

Regret is what choosing costs against always choosing the best action, summed over the horizon.
Every theorem is one inequality, :func:`regret_ucb`, with a bound on the missing rewards put in. The
paper then takes the root of each term of that bound apart, which is why ``regret_ucb`` with a bound
of your choice is always the smaller number: take it with ``bounds_for(delay, ...).best_maximum``.

The numbers say how regret grows, not how large it is: for logistic rewards they exceed the horizon
until about 10⁶ rounds or more. The "universal" constant in the paper's τ depends on the delay and
the noise, so that τ is an argument here: :func:`~belated.theory.warmup_chernoff`.

The theorems need rewards that say nothing of their delay, rows of uniform exploration with a
regular second moment (Assumption 1), and a warm-up after which λ_min(W) is at least
:func:`~belated.theory.threshold`. The paper bounds \|θ̂ - θ*\| by 1 in one round where its proof
needs all rounds; with that threshold it follows for all of them from the width, up to horizons
beyond 10¹³.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from belated.core.inputs import as_nonnegative, as_probability
from belated.delays import Parameters
from belated.theory import terms
from belated.theory.settings import Setting
from belated.theory.widths import width_paper


def regret_ucb(setting: Setting, *, missing: float, warmup: float, delta: float) -> float:
    r"""The regret of DUCB, from any bound on the rewards that are missing.

    τ + L_g (2√G* √(2Td log(T/d)) + (2dσ̂/κ) log(T/(dδ)) √T), the inequality behind all theorems. It
    holds with probability 1 - 5δ, or 1 - 3δ where the bound on missing rewards never fails.

    The last step of the proof, to the term with log(T/(dδ)), fails for d = 1 unless δ is small, and
    for more features where δ is near 1; the greater of that term and the one before the step is
    taken.

    Args:
        setting: the problem.
        missing: a bound on G*_T that holds with probability 1 - δ, a ``missing_max_*``.
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


def regret_independent(
    setting: Setting, delay: Parameters, *, warmup: float, delta: float
) -> float:
    r"""The regret of DUCB where delays are independent (Theorem 1), with probability 1 - 5δ.

    It assumes the tail of Assumption 2. The theorem prints a width with G_t where the algorithm and
    the proof have √G_t; the roots in this bound are those of the latter.

    Args:
        setting: the problem.
        delay: its mu, M, sigma and q.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_independent(setting, law, warmup=95_466, delta=0.05) / setting.horizon
    0.1075
    """
    return _total(setting, terms.independent(delay, setting.horizon, delta), warmup, delta)  # (16)


def regret_iid(setting: Setting, delay: Parameters, *, warmup: float, delta: float) -> float:
    r"""The regret of DUCB where delays are independent with one law (Proposition 2.2).

    It is Theorem 1 with the mean delay for μ + M, and holds with probability 1 - 5δ. The
    introduction of the paper has the mean in its rate where this has its root. The mean is counted
    twice, although no more are missing on average than the mean says: :func:`regret_ucb` with
    :func:`~belated.theory.missing_max_bennett` uses that.

    Args:
        setting: the problem.
        delay: its mu, sigma and q.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_iid(setting, law, warmup=95_466, delta=0.05) / setting.horizon
    0.1075
    """
    return _total(setting, terms.iid(delay, setting.horizon, delta), warmup, delta)


def regret_bounded(setting: Setting, delay: Parameters, *, warmup: float, delta: float) -> float:
    r"""The regret of DUCB where no delay exceeds a bound (Proposition 2.1), with 1 - 3δ.

    The proof ends with a rate that has D_max where its last inequality has √D_max, as here.

    Args:
        setting: the problem.
        delay: its bound.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Batched
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_bounded(setting, Batched(1000).params(), warmup=95_466, delta=0.05) / 10**8
    0.0748
    """
    return _total(setting, terms.bounded(delay), warmup, delta)  # (18)


def regret_markov(setting: Setting, delay: Parameters, *, warmup: float, delta: float) -> float:
    r"""The regret of DUCB where delays follow a Markov chain (Theorem 3), with 1 - 5δ.

    It assumes a stationary chain with a spectral gap and a finite mean. The rate that follows the
    theorem has μ where the theorem itself has its fourth root.

    Args:
        setting: the problem.
        delay: its mu and spectral.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric, LazyMarkov
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> chain = LazyMarkov(0.5, base=Geometric(mean=20)).params()
    >>> regret_markov(setting, chain, warmup=95_466, delta=0.05) / setting.horizon
    0.0700
    """
    return _total(setting, terms.markov(delay, setting.horizon, delta), warmup, delta)  # (25)


def regret_random(setting: Setting, delay: Parameters, *, warmup: float, delta: float) -> float:
    r"""The regret of DUCB where delays depend on one another in any way (Theorem 5), with 1 - 5δ.

    It assumes one law with a tail lighter than Gaussian (Assumption 4). The theorem prints C₃,
    which belongs to Theorem 1; its proof has C₄ = 2σ_R² + 1, as here. The mean is rounded up, as
    in :func:`~belated.theory.missing_random`.

    Args:
        setting: the problem.
        delay: its mu, sigma_r and q_r.
        warmup: τ.
        delta: δ.

    >>> from belated import Bernoulli
    >>> from belated.delays import Uniform
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_random(setting, Uniform(10).params(), warmup=95_466, delta=0.05) / setting.horizon
    0.07
    """
    return _total(setting, terms.random(delay, setting.horizon, delta), warmup, delta)  # (29)


def potential(setting: Setting) -> float:
    """√(2Td log(T/d)), a bound on the sum of the deviations of all choices (41)."""
    rounds, dim = setting.horizon, setting.dim
    return math.sqrt(2.0 * rounds * dim * math.log(rounds / dim))


def _total(setting: Setting, parts: Iterable[float], warmup: float, delta: float) -> float:
    """The inequality (42), with a root for each term of the bound on missing rewards."""
    waiting = 2.0 * potential(setting) * math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup")
    return rounds * setting.span + setting.steepest * (waiting + _learning(setting, delta))


def _learning(setting: Setting, delta: float) -> float:
    """What would be lost without delays."""
    T, d = setting.horizon, setting.dim
    log = math.log(T / (d * as_probability(delta, "delta")))
    stated = 2.0 * d * setting.sigma / setting.kappa * log * math.sqrt(T)
    width = width_paper(T, 0.0, d, delta=delta, sigma=setting.sigma, kappa=setting.kappa)
    # The last step of (42) fails for d = 1, and for d ≥ 2 where δ is near 1.
    return max(stated, 2.0 * width * potential(setting))
