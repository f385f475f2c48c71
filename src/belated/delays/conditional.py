"""Delays that depend on the row or on the reward, so that they can only be drawn with them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from belated.core.inputs import as_positive
from belated.delays.checks import as_law
from belated.delays.process import Law, Parameters
from belated.delays.whole import as_uniforms, rounded_up
from belated.exceptions import InvalidInput


class Conditional(ABC):
    """A delay given the row and the reward; alone it has no law."""

    #: Not known without the rows and the rewards of a run.
    mean: ClassVar[float] = math.nan
    #: Not of one law.
    independent: ClassVar[bool] = False
    _what: ClassVar[str]

    @abstractmethod
    def given(self, u: float, x: Any, y: float) -> int:
        """The delay of a reward y for the row x, from a uniform number u in [0, 1)."""

    def tail(self, i: Any) -> NoReturn:
        """Refused."""
        raise InvalidInput(f"the delay depends on {self._what}: it has no tail of its own", self)

    def sample(self, horizon: int, rng: np.random.Generator) -> NoReturn:
        """Refused."""
        message = f"the delay depends on {self._what}: use simulate, which draws it by given()"
        raise InvalidInput(message, self)


@dataclass(frozen=True, kw_only=True)
class RewardDependent(Conditional):
    """Another law for successes than for failures.

    What has arrived is then no fair sample: an estimate from it is biased, however many rewards
    there are. With ``zero_law=Constant(NEVER)`` only successes are ever reported.

    Args:
        zero_law: of the delay of a reward of 0 or less.
        one_law: of the delay of a reward above 0.

    >>> from belated.delays import Constant, Geometric
    >>> process = RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=400))
    >>> process.given(0.5, x=None, y=0.0), process.given(0.5, x=None, y=1.0)
    (0, 277)
    """

    _what: ClassVar[str] = "the reward"

    zero_law: Law
    one_law: Law

    def __post_init__(self) -> None:
        as_law(self.zero_law, "zero_law")
        as_law(self.one_law, "one_law")

    def given(self, u: float, x: Any, y: float) -> int:
        """From the law that the reward names."""
        return int((self.one_law if y > 0.0 else self.zero_law).quantile(u))

    def params(self) -> Parameters:
        """The bound, if both laws have one."""
        zero, one = self.zero_law.params().bound, self.one_law.params().bound
        return Parameters(bound=None if zero is None or one is None else max(zero, one))


@dataclass(frozen=True)
class ContextDependent(Conditional):
    """An exponential time with a rate that depends on the row, rounded up.

    Given the row the delay says nothing of the reward, so an estimate from what has arrived is
    sound. But rows with quick rewards are learned first.

    Args:
        rate: of arrival, from the row of the chosen action: above 0, per round.

    >>> process = ContextDependent(lambda x: 0.01 if x[0] > 0 else 0.1)
    >>> process.given(0.5, np.array([1.0]), 0.0), process.given(0.5, np.array([-1.0]), 0.0)
    (70, 7)
    """

    _what: ClassVar[str] = "the row"

    rate: Callable[[Any], float]

    def __post_init__(self) -> None:
        if not callable(self.rate):
            raise InvalidInput(f"rate is {self.rate!r}: a function of the row", self.rate)

    def given(self, u: float, x: Any, y: float) -> int:
        """⌈-log(1 - u)/rate(x)⌉."""
        rate = as_positive(self.rate(x), "rate(x)")
        return int(rounded_up(-np.log1p(-as_uniforms(u)) / rate))

    def params(self) -> Parameters:
        """Nothing is known without the rows."""
        return Parameters()
