"""The theoretical bounds, as functions.

The paper is Blanchet, Xu, Zhou, *Delay-Adaptive Learning in Generalized Linear Contextual
Bandits*; theorems and equations are numbered as in the paper.

**Missing rewards.** ``missing_*`` bounds the number of missing rewards in one round or, with
``horizon``, in all rounds jointly; :func:`bounds_for` computes all bounds that hold for a delay.

================== ======================================================= ====================
name               delays                                                  source
================== ======================================================= ====================
``*_bennett``      independent, any distribution: recommended              this library
``*_union``        any dependence, any distribution: recommended           this library
``*_stopping``     independent, any distribution                           Prop. 1, sharpened
``*_prop1``        independent, at most exponential tails                  Proposition 1
``*_iid``          independent, one exponential tail                       equation (10)
``*_hoeffding``    independent, tails lighter than exponential             Proposition 5
``*_markov``       a Markov chain with a spectral gap                      Proposition 3
``*_random``       any dependence, tails lighter than Gaussian             Proposition 4
``*_bounded``      not longer than a bound                                 Proposition 2
================== ======================================================= ====================

All bounds require delays that are independent of the rewards. Their parameters are returned by the
``params()`` method of a delay; see :class:`belated.delays.Parameters`.

**Confidence widths** are computed by ``width_*``, and the **rounds of initial exploration** by
``warmup_*``.

**Regret** is bounded by :func:`regret_theorem` for the paper's DUCB and by
:func:`regret_bayes_theorem` for its DTS, in a :class:`Setting`. Every theorem is :func:`regret_ucb`
or :func:`regret_bayes` with a particular bound on the missing rewards; using the best bound is
never worse. For logistic rewards, the results exceed the horizon until about 10⁶ rounds. They show
how regret grows, but do not predict it.

>>> from belated import Bernoulli, delays
>>> delay, horizon = delays.Geometric(mean=100), 10**6
>>> setting = Setting.of(Bernoulli(), horizon=horizon, dim=10, norm_bound=1.0)
>>> missing = bounds_for(delay, horizon=horizon, delta=0.05)
>>> round(missing.best), round(missing.best_maximum)
(125, 163)
>>> target = threshold(10, delta=0.05, sigma=setting.sigma, kappa=setting.kappa)
>>> warmup = warmup_chernoff(10, delta=0.05, target=target, missing=missing.best)
>>> regret = regret_ucb(setting, missing=missing.best_maximum, warmup=warmup, delta=0.05)
>>> f"{regret / horizon:.2f} per round, where 1 is the maximum"
'0.54 per round, where 1 is the maximum'
"""

from belated.theory.bounds import Bound, Bounds, bounds_for
from belated.theory.confidence import (
    max_slope,
    min_slope,
    threshold,
    warmup_chernoff,
    warmup_paper,
    width_log,
    width_paper,
    width_spectral,
    width_tight,
)
from belated.theory.missing import (
    missing_bennett,
    missing_bounded,
    missing_hoeffding,
    missing_iid,
    missing_markov,
    missing_prop1,
    missing_random,
    missing_stopping,
    missing_union,
)
from belated.theory.regret import (
    Setting,
    regret_bayes,
    regret_bayes_theorem,
    regret_expected,
    regret_theorem,
    regret_ucb,
)

__all__ = [
    "Bound",
    "Bounds",
    "Setting",
    "bounds_for",
    "max_slope",
    "min_slope",
    "missing_bennett",
    "missing_bounded",
    "missing_hoeffding",
    "missing_iid",
    "missing_markov",
    "missing_prop1",
    "missing_random",
    "missing_stopping",
    "missing_union",
    "regret_bayes",
    "regret_bayes_theorem",
    "regret_expected",
    "regret_theorem",
    "regret_ucb",
    "threshold",
    "warmup_chernoff",
    "warmup_paper",
    "width_log",
    "width_paper",
    "width_spectral",
    "width_tight",
]
