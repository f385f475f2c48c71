"""The paper's algorithms to the letter, errata resolved.

They are here to be checked and compared with. For use take :class:`DelayedUCB` or
:class:`DelayedThompson`: the paper's widths are an order of magnitude too wide and its warm-up is
longer than most horizons.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from belated.core.inputs import as_positive
from belated.exceptions import InvalidInput
from belated.model.estimators import Laplace, Ridge
from belated.model.families import Family, Gaussian
from belated.model.model import Model
from belated.policies.blind import BlindThompson
from belated.policies.delayed_ucb import DelayedUCB
from belated.policies.policy import Policy
from belated.policies.warmup import Warmup
from belated.theory.confidence import least_slope, noise, threshold, warmup_chernoff, width_paper

#: Stands for the paper's "no prior" once the warm-up has made the information regular.
NO_RIDGE = 1e-10


@dataclass(frozen=True)
class _PaperUCB(DelayedUCB):
    _: KW_ONLY
    delta: float
    sigma: float
    kappa: float

    def width(self, model: Model) -> float:
        """β_t (Alg. 1, l. 5)."""
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
    """DUCB-GLCB (Alg. 1): the maximum-likelihood estimate, V_t with all decisions, β_t with √G_t.

    Args:
        dim: d.
        family: of the rewards.
        norm_bound: a bound S on the norm of θ*, from which κ is computed.
        delta: δ.
        warmup: τ in rounds. None: until as many rewards have come as the theorem asks for, with
            the explicit constants of a matrix Chernoff bound and rows like those of a sphere.
        ridge: the paper has none; more than its default helps where W_t stays singular.

    >>> from belated import Bernoulli
    >>> policy = paper_ducb(10, Bernoulli(), 3.0)
    >>> f"{policy.arrivals:.2g}"
    '3.3e+06'
    """
    if not 0.0 < delta < 1.0:
        raise InvalidInput(f"delta is {delta!r}: a probability between 0 and 1", delta)
    kappa, sigma = least_slope(family, norm_bound), noise(family, norm_bound)
    then = _PaperUCB(
        dim,
        family,
        ridge=ridge,
        metric="gram",
        estimator=Laplace(growth=1.0),  # Alg. 1, l. 4: the estimate of every round
        delta=delta,
        sigma=sigma,
        kappa=kappa,
    )
    if warmup is not None:
        return Warmup(then, rounds=warmup)
    target = threshold(dim, delta=delta, sigma=sigma, kappa=kappa)
    return Warmup(then, arrivals=warmup_chernoff(dim, delta=delta, target=target))


def paper_dts(
    dim: int, family: Family, *, warmup: int = 0, ridge: float = 1.0, draws: int = 64
) -> Policy:
    """DTS-GLCB (Alg. 2): a fresh draw from the posterior of what has arrived, at every choice.

    The posterior is the Laplace approximation at the prior N(0, I/ridge); the rewards of the whole
    warm-up enter it, not only those of its last round as printed.

    >>> from belated import Bernoulli
    >>> paper_dts(10, Bernoulli(), warmup=200).rounds
    200
    """
    then = BlindThompson(
        dim,
        family,
        ridge=ridge,
        scale=1.0,
        draws=draws,
        refresh=0.0,
        estimator=Laplace(growth=1.0),
    )
    return Warmup(then, rounds=warmup)


def paper_dts_lcb(
    dim: int, *, noise: float = 1.0, a: float = 1.0, warmup: int = 0, draws: int = 64
) -> Policy:
    """DTS-LCB (Alg. 3): the conjugate case, B = a I + Σ x xᵀ and θ ~ N(B⁻¹f, v² B⁻¹).

    Args:
        dim: d.
        noise: v, the standard deviation of a reward.
        a: of the prior N(0, v²/a I); the paper allows 0, which is no prior at all, and drops a
            where it forms B₁: both are resolved.
        warmup: τ in rounds.
        draws: in a fresh pool at every choice, for its propensity.

    >>> paper_dts_lcb(10, noise=0.5).family
    Gaussian(variance=0.25)
    """
    as_positive(noise, "noise")
    then = BlindThompson(
        dim,
        Gaussian(noise**2),
        ridge=as_positive(a, "a") / noise**2,
        scale=1.0,
        draws=draws,
        refresh=0.0,
        estimator=Ridge(),
    )
    return Warmup(then, rounds=warmup)
