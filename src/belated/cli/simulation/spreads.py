"""What several seeds say together: means, their standard errors, and paired differences."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from belated.kernels import special

#: How often chance alone goes beyond what is called hardly chance.
CHANCE = 0.05


@dataclass(frozen=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: of the values.
        error: its standard error; None where there is one value only.
        least: of the values.
        most: of the values.
    """

    mean: float
    error: float | None
    least: float
    most: float

    @classmethod
    def of(cls, values: Any) -> Spread:
        """The values of all seeds.

        >>> print(Spread.of([1.0, 2.0, 3.0]))
        2.0 ± 0.6
        >>> print(Spread.of([1.0]))
        1.0
        """
        array = np.asarray(values, dtype=np.float64)
        count = len(array)
        error = float(array.std(ddof=1)) / math.sqrt(count) if count > 1 else None
        return cls(float(array.mean()), error, float(array.min()), float(array.max()))

    @property
    def t(self) -> float | None:
        """The mean in standard errors, None where there are none."""
        return self.mean / self.error if self.error else None

    def text(self, sign: str = "") -> str:
        """The mean with its error; ``sign="+"`` also writes that of a positive mean."""
        mean = format(self.mean, f"{sign},.1f")
        return mean if self.error is None else f"{mean} ± {self.error:,.1f}"

    def __str__(self) -> str:
        return self.text()


def hardly_chance(seeds: int) -> float:
    """The size of t that chance alone goes beyond once in twenty times.

    >>> round(hardly_chance(10), 2)
    2.26
    """
    return float(special.stdtrit(seeds - 1, 1.0 - 0.5 * CHANCE))
