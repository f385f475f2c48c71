"""The paper's algorithms as published, with its errata corrected.

These algorithms are meant for verification and comparison. In production, use :class:`DelayedUCB`
or :class:`DelayedThompson`, because the paper's widths are an order of magnitude too wide and its
warm-up is longer than most horizons.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.core.inputs import as_positive, as_probability
from belated.model.estimators import Laplace, Ridge
from belated.model.families import Family, Gaussian
from belated.model.model import Model
from belated.policies.blind import BlindThompson
from belated.policies.delayed_ucb import DelayedUCB
from belated.policies.policy import Policy
from belated.policies.warmup import Warmup
from belated.theory.confidence import min_slope, noise, threshold, warmup_chernoff, width_paper

#: Prior precision for algorithms without a prior, which rely on the warm-up to make W invertible.
NO_RIDGE = 1e-10


@dataclass(frozen=True)
class _PaperUCB(DelayedUCB):
    _: KW_ONLY
    delta: float
    sigma: float
    kappa: float

    def width(self, model: Model) -> float:
        """Return β_t (Alg. 1, l. 5)."""
        return width_paper(
            model.n,
            model.pending,
            self.dim,
            delta=self.delta,
            sigma=self.sigma,
            kappa=self.kappa,
        )


def paper_ducb(
    dim: int,
    family: Family,
    norm_bound: float,
    *,
    delta: float = 0.05,
    warmup: int | None = None,
    ridge: float = NO_RIDGE,
) -> Policy:
    """Return DUCB-GLCB (Alg. 1), with maximum likelihood, all decisions in V_t, and √G_t in β_t.

    Args:
        dim: the number of features d.
        family: family of the rewards.
        norm_bound: a bound S on the norm of θ*, from which κ is computed.
        delta: the probability δ with which the bound may fail.
        warmup: τ in rounds. None means until the number of rewards required by the theorem has
            arrived, using the explicit constants of a matrix Chernoff bound for rows on a sphere.
        ridge: precision of the prior; the paper has no prior. Increase it if W_t stays singular.

    >>> from belated import Bernoulli
    >>> policy = paper_ducb(10, Bernoulli(), 3.0)
    >>> f"{policy.arrivals:.2g}"
    '3.3e+06'
    """
    as_probability(delta, "delta")
    kappa, sigma = min_slope(family, norm_bound), noise(family, norm_bound)
    policy = _PaperUCB(
        dim,
        family,
        ridge=ridge,
        metric="gram",
        estimator=Laplace(growth=1.0),  # Alg. 1, l. 4: estimate in every round
        delta=delta,
        sigma=sigma,
        kappa=kappa,
    )
    if warmup is not None:
        return Warmup(policy, rounds=warmup)
    target = threshold(dim, delta=delta, sigma=sigma, kappa=kappa)
    return Warmup(policy, arrivals=warmup_chernoff(dim, delta=delta, target=target))


def paper_dts(
    dim: int, family: Family, *, warmup: int = 0, ridge: float = 1.0, draws: int = 64
) -> Policy:
    """Return DTS-GLCB (Alg. 2), which samples the posterior of arrived rewards at every choice.

    The posterior is the Laplace approximation with the prior N(0, I/ridge). It includes the rewards
    of the whole warm-up, whereas the published algorithm includes only those of its last round.

    >>> from belated import Bernoulli
    >>> paper_dts(10, Bernoulli(), warmup=200).rounds
    200
    """
    policy = BlindThompson(
        dim,
        family,
        ridge=ridge,
        scale=1.0,
        draws=draws,
        refresh=0.0,
        estimator=Laplace(growth=1.0),
    )
    return Warmup(policy, rounds=warmup)


def paper_dts_lcb(
    dim: int, *, noise: float = 1.0, a: float = 1.0, warmup: int = 0, draws: int = 64
) -> Policy:
    """Return DTS-LCB (Alg. 3): the conjugate case, B = a I + Σ x xᵀ and θ ~ N(B⁻¹f, v² B⁻¹).

    Args:
        dim: the number of features d.
        noise: v, the standard deviation of a reward.
        a: parameter of the prior N(0, v²/a I); must be above 0. The paper allows 0, which is an
            improper prior, and omits a in its definition of B₁; both are corrected here.
        warmup: τ in rounds.
        draws: number of new draws at every choice, from which the propensity is computed.

    >>> paper_dts_lcb(10, noise=0.5).family
    Gaussian(variance=0.25)
    """
    as_positive(noise, "noise")
    policy = BlindThompson(
        dim,
        Gaussian(noise**2),
        ridge=as_positive(a, "a") / noise**2,
        scale=1.0,
        draws=draws,
        refresh=0.0,
        estimator=Ridge(),
    )
    return Warmup(policy, rounds=warmup)
