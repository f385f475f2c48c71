r"""What the paper's DTS (Algorithms 2 and 3) can cost, averaged over its prior.

As for DUCB, every theorem is one inequality, :func:`regret_bayes`, with a bound on the missing
rewards put in, and with the root of each of its terms. The paper states these theorems by their
rates; the constants here are those of its proofs, at δ = 1/T.

The mean of rewards must have a least slope κ > 0 on the whole support of the prior; the paper asks
for it around the truth only. A Gaussian prior with a logistic link has none, so that nothing
follows for it: a setting with ``norm_bound=S`` is for priors on \|θ\| ≤ S.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from belated.core.inputs import as_nonnegative
from belated.delays import Parameters
from belated.theory import terms
from belated.theory.regret import potential
from belated.theory.settings import Setting
from belated.theory.widths import width_paper


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
    return _total(setting, [as_nonnegative(missing, "missing")], warmup)


def regret_bayes_independent(setting: Setting, delay: Parameters, *, warmup: float) -> float:
    r"""The regret of DTS over its prior where delays are independent (Theorem 2).

    It assumes the tail of Assumption 2.

    Args:
        setting: the problem, with κ for the support of the prior.
        delay: its mu, M, sigma and q.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_bayes_independent(setting, law, warmup=206_400) / setting.horizon
    0.1065
    """
    parts = terms.independent(delay, setting.horizon, 1.0 / setting.horizon)
    return _total(setting, _on_average(parts), warmup)


def regret_bayes_iid(setting: Setting, delay: Parameters, *, warmup: float) -> float:
    r"""The regret of DTS over its prior where delays are independent with one law (Corollary 2.2).

    It is Theorem 2 with the mean delay for μ + M. The introduction of the paper has the mean in its
    rate where the corollary, and this, have its root.

    Args:
        setting: the problem, with κ for the support of the prior.
        delay: its mu, sigma and q.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> law = Geometric(mean=100).params()
    >>> regret_bayes_iid(setting, law, warmup=206_400) / setting.horizon
    0.1065
    """
    parts = terms.iid(delay, setting.horizon, 1.0 / setting.horizon)
    return _total(setting, _on_average(parts), warmup)


def regret_bayes_bounded(setting: Setting, delay: Parameters, *, warmup: float) -> float:
    r"""The regret of DTS over its prior where no delay exceeds a bound (Corollary 2.1).

    The bound on missing rewards never fails, so that nothing is added for it.

    Args:
        setting: the problem, with κ for the support of the prior.
        delay: its bound.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Batched
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_bayes_bounded(setting, Batched(1000).params(), warmup=206_400) / 10**8
    0.0737
    """
    return _total(setting, terms.bounded(delay), warmup)


def regret_bayes_markov(setting: Setting, delay: Parameters, *, warmup: float) -> float:
    r"""The regret of DTS over its prior where delays follow a Markov chain (Theorem 4).

    It assumes what :func:`~belated.theory.regret_markov` does.

    Args:
        setting: the problem, with κ for the support of the prior.
        delay: its mu and spectral.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Geometric, LazyMarkov
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> chain = LazyMarkov(0.5, base=Geometric(mean=20)).params()
    >>> regret_bayes_markov(setting, chain, warmup=206_400) / setting.horizon
    0.0740
    """
    parts = terms.markov(delay, setting.horizon, 1.0 / setting.horizon)
    return _total(setting, _on_average(parts), warmup)


def regret_bayes_random(setting: Setting, delay: Parameters, *, warmup: float) -> float:
    r"""The regret of DTS over its prior where delays depend on one another in any way (Theorem 6).

    It assumes what :func:`~belated.theory.regret_random` does.

    Args:
        setting: the problem, with κ for the support of the prior.
        delay: its mu, sigma_r and q_r.
        warmup: τ at δ = 1/T.

    >>> from belated import Bernoulli
    >>> from belated.delays import Uniform
    >>> setting = Setting.of(Bernoulli(), horizon=10**8, dim=10, norm_bound=1.0)
    >>> regret_bayes_random(setting, Uniform(10).params(), warmup=206_400) / setting.horizon
    0.0770
    """
    parts = terms.random(delay, setting.horizon, 1.0 / setting.horizon)
    return _total(setting, _on_average(parts), warmup)


def _total(setting: Setting, parts: Iterable[float], warmup: float) -> float:
    """What follows from (49), with a root for each term of the bound on missing rewards."""
    T = setting.horizon
    width = width_paper(
        T, 0.0, setting.dim, delta=1.0 / T, sigma=setting.sigma, kappa=setting.kappa
    )
    roots = math.fsum(map(math.sqrt, parts))
    rounds = as_nonnegative(warmup, "warmup") + 2.0
    return rounds * setting.span + 2.0 * setting.steepest * (width + roots) * potential(setting)


def _on_average(parts: terms.Terms) -> terms.Terms:
    """The terms of a bound on E G*_T: a bound that fails with 1/T gives 1 more, at most."""
    *others, last = parts
    return (*others, last + 1.0)
