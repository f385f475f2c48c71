"""The bounds on missing rewards that hold for a delay, and why other bounds do not hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from belated.core.inputs import as_probability
from belated.delays import Batched, Conditional, DelayProcess, expected_missing
from belated.delays.process import as_rounds
from belated.exceptions import InvalidInput
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


@dataclass(frozen=True)
class Bound:
    """A bound on the number of missing rewards, with the reason why it holds or does not hold.

    Attributes:
        name: Name of the function without the prefix, such as ``bennett`` for ``missing_bennett``.
        value: The bound for any single round; None if it does not hold.
        maximum: The bound for all rounds jointly; None if it does not hold.
        why: The assumption under which the bound holds, or the first assumption that is not met.
        reference: Where the bound is proved.
    """

    name: str
    value: float | None
    maximum: float | None
    why: str
    reference: str

    @property
    def holds(self) -> bool:
        """Whether the assumptions are met."""
        return self.value is not None


@dataclass(frozen=True)
class Bounds:
    """All bounds on the missing rewards of one delay.

    Attributes:
        horizon: T; values hold in each round up to T, maxima in all of these rounds jointly.
        delta: Probability δ with which each bound may fail.
        rows: The bounds, starting with those of the paper.
    """

    horizon: int
    delta: float
    rows: tuple[Bound, ...]

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Bound:
        """Return a bound by name."""
        return {row.name: row for row in self.rows}[name]

    @property
    def best(self) -> float:
        """The smallest value that holds."""
        return min(row.value for row in self.rows if row.value is not None)

    @property
    def best_maximum(self) -> float:
        """The smallest maximum that holds."""
        return min(row.maximum for row in self.rows if row.maximum is not None)


def bounds_for(delay: DelayProcess, *, horizon: int, delta: float = 0.05) -> Bounds:
    """Compute all known bounds on the number of missing rewards for a delay.

    For observed delays, use ``Empirical(seen)``. The bounds then apply to the sample, whose largest
    delay does not bound future delays. Because a sample does not show whether delays depend on one
    another, ``union`` is the safe choice.

    The :class:`~belated.delays.Parameters` of a custom process are trusted, and its tail is assumed
    to apply to every round.

    Args:
        delay: Delay process, assumed to be independent of the rewards unless it declares otherwise.
        horizon: T, the number of rounds.
        delta: δ.

    >>> from belated.delays import Geometric
    >>> bounds = bounds_for(Geometric(mean=100), horizon=3000)
    >>> for bound in bounds:
    ...     if bound.holds:
    ...         print(f"{bound.name:9} {bound.value:7.1f} {bound.maximum:7.1f}  {bound.reference}")
    ...     else:
    ...         print(f"{bound.name:9} {bound.why}")
    prop1      1154.2  1366.7  Proposition 1
    iid        1052.2  1074.7  Proposition 1, special case (10)
    hoeffding The bound requires q > 0, but this tail is exponential (q = 0).
    markov      125.5   150.6  Proposition 3
    random    No known scale makes the tail lighter than Gaussian (Assumption 4).
    bounded   A delay can be arbitrarily long.
    bennett     125.5   150.4  Bennett's inequality
    union       764.0  1061.0  union over ages
    stopping    487.0   510.0  Proposition 1, with a sharper proof
    rounds     2999.0  2999.0  number of rounds
    >>> bounds.best, bounds["hoeffding"].holds
    (125.5, False)
    """
    if not callable(getattr(delay, "params", None)):
        message = (
            "`delay` must be a delay process, such as Geometric(mean=100), or Empirical(seen) for"
            f" observed delays; got {type(delay).__name__}"
        )
        raise InvalidInput(message, delay)
    horizon, delta = as_rounds(horizon, "horizon", least=1), as_probability(delta, "delta")
    p, law = delay.params(), (delay.tail, horizon)
    # Reasons why a bound does not hold.
    one_law = _not_one_law(delay)  # None if all rounds share one distribution
    objection = one_law or (None if delay.independent else "Delays depend on one another.")
    mean = _unknown(p.mu, "The mean delay is infinite.")
    unscaled = "No known scale makes the tail"
    scale = mean or _unknown(p.sigma, f"{unscaled} as light as Assumption 2 requires.")
    scale_r = mean or _unknown(p.sigma_r, f"{unscaled} lighter than Gaussian (Assumption 4).")
    chained = "The delay is not known to be a Markov chain with a spectral gap."
    gap = mean or _unknown(p.spectral, chained)
    steep = f"The bound is for exponential tails (q = 0), but here q = {p.q:g}." if p.q else None
    flat = None if p.q else "The bound requires q > 0, but this tail is exponential (q = 0)."
    # Reasons why a bound holds.
    light = f"Delays are independent with the tail of Assumption 2, q = {p.q or 0:g}."
    exponential = "Delays are independent with one exponential tail."
    chain = f"Delays are a stationary Markov chain with λ = {p.spectral or 0:g}."
    lighter = "All delays have one distribution, with a tail lighter than Gaussian."
    independent = "Delays are independent, with any distribution."
    alike = "All delays have one distribution, with any dependence between them."
    always = "Only rewards of earlier rounds can be missing."

    def bound(
        function: Callable[..., float],
        numbers: Sequence[Any],
        reference: str,
        against: str | None,
        reason: str,
    ) -> Bound:
        name = function.__name__.removeprefix("missing_")
        if against is not None:
            return Bound(name, None, None, against, reference)
        over = {"together": True} if numbers is law else {"horizon": horizon}
        value, maximum = (function(*numbers, delta=delta, **options) for options in ({}, over))
        return Bound(name, value, maximum, reason, reference)

    tail, any_tail = (p.mu, p.M, p.sigma, p.q), (p.mu, p.sigma_r, p.q_r)
    longest = None if p.bound is None else missing_bounded(p.bound)
    short = "A delay can be arbitrarily long."
    if longest is not None:
        short = f"No delay is longer than {p.bound} rounds."
    missing = () if objection else (float(expected_missing(delay, horizon)),)
    special, sharpened = "Proposition 1, special case (10)", "Proposition 1, with a sharper proof"
    rows = (
        bound(missing_prop1, tail, "Proposition 1", objection or scale, light),
        bound(missing_iid, (p.mu, p.sigma), special, objection or scale or steep, exponential),
        bound(missing_hoeffding, tail, "Proposition 5", objection or scale or flat, light),
        bound(missing_markov, (p.mu, p.spectral), "Proposition 3", one_law or gap, chain),
        bound(missing_random, any_tail, "Proposition 4", one_law or scale_r, lighter),
        Bound("bounded", longest, longest, short, "Proposition 2"),
        bound(missing_bennett, missing, "Bennett's inequality", objection, independent),
        bound(missing_union, law, "union over ages", one_law, alike),
        bound(missing_stopping, law, sharpened, objection, independent),
        Bound("rounds", horizon - 1.0, horizon - 1.0, always, "number of rounds"),
    )
    return Bounds(horizon, delta, rows)


def _not_one_law(delay: DelayProcess) -> str | None:
    if isinstance(delay, Conditional):
        return "The delay depends on the row or the reward, so it has no single distribution."
    if isinstance(delay, Batched):
        return "The delay depends on the round, so the rounds do not share one distribution."
    return None


def _unknown(number: float | None, reason: str) -> str | None:
    """Return ``reason`` if a number is None, or a different reason if it is not finite."""
    if number is None:
        return reason
    return None if math.isfinite(number) else "A scale of the tail is too large for a float."
