"""The terms of a bound on the most rewards missing at once, from what is known of a delay.

The theorems on regret have the root of each term.
"""

from __future__ import annotations

from belated.delays import Parameters
from belated.exceptions import InvalidInput
from belated.theory.levels import log_level, per_round
from belated.theory.missing_dependent import markov_terms, missing_max_bounded, random_terms
from belated.theory.missing_independent import prop1_terms

Terms = tuple[float, ...]


def independent(delay: Parameters, horizon: int, delta: float) -> Terms:
    """Proposition 1.2."""
    return prop1_terms(*_needed(delay, "mu", "M", "sigma", "q"), horizon=horizon, delta=delta)


def iid(delay: Parameters, horizon: int, delta: float) -> Terms:
    """Proposition 1.2 with the mean delay for μ + M."""
    mu, sigma, q = _needed(delay, "mu", "sigma", "q")
    return prop1_terms(mu, 0.0, sigma, q, horizon=horizon, delta=delta)


def bounded(delay: Parameters) -> Terms:
    """The longest delay."""
    return (missing_max_bounded(int(*_needed(delay, "bound"))),)


def markov(delay: Parameters, horizon: int, delta: float) -> Terms:
    """Proposition 3.2."""
    mu, spectral = _needed(delay, "mu", "spectral")
    return markov_terms(mu, spectral, log_level(per_round(delta, horizon)))


def random(delay: Parameters, horizon: int, delta: float) -> Terms:
    """Proposition 4.2."""
    return random_terms(*_needed(delay, "mu", "sigma_r", "q_r"), horizon=horizon, delta=delta)


def _needed(delay: Parameters, *names: str) -> list[float]:
    """The numbers that a theorem asks for."""
    numbers = [getattr(delay, name) for name in names]
    if None in numbers:
        message = (
            f"{names[numbers.index(None)]} of the delay is None: the theorem's assumption does not"
            " hold, or is not known to; take regret_ucb with bounds_for(delay, ...).best_maximum"
        )
        raise InvalidInput(message, delay)
    return numbers
