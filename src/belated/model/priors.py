"""Normal priors of θ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from belated.core.inputs import Matrix, Vector, as_numbers, as_positive, must_be
from belated.core.results import Shortened
from belated.exceptions import InvalidInput
from belated.model.blocks import Shape, as_shape, identity

#: Initial value and range of the estimated precision of an adaptive prior. The precision never
#: exceeds its initial value, because a little data without a visible effect must not stop
#: exploration.
AUTO_START, AUTO_RANGE = 1.0, (0.02, 1.0)
#: What separately fitted coefficients contribute to the estimate of the precision: the number of
#: coefficients determined by rewards, and the sum of squares of the coefficients.
Others = tuple[float, float]
NO_OTHERS: Others = (0.0, 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Prior(Shortened):
    """A normal prior on θ.

    Attributes:
        mean: mean of θ.
        precision: inverse of the covariance of θ, positive definite.
        adaptive: whether the precision is a multiple of I that estimators fit to the data.
        others: contribution of separately fitted coefficients when the precision is fitted.

    >>> Prior.ridge(2, 1.0).precision
    array([[1., 0.],
           [0., 1.]])
    """

    mean: Vector
    precision: Matrix
    adaptive: bool = False
    others: Others = NO_OTHERS

    @classmethod
    def ridge(cls, shape: int | Shape, ridge: float | Literal["auto"] = 1.0) -> Prior:
        """Return a prior with mean zero and precision ``ridge`` times I.

        A precision of 1 suits rows with a norm of up to 1 and moderate effects. "auto" starts at 1
        and estimates the precision from the data.
        """
        shape = as_shape(shape)
        if isinstance(ridge, str):
            if ridge != "auto":
                raise must_be("ridge", "a number above 0 or 'auto'", ridge)
            return cls(np.zeros(shape), identity(shape, AUTO_START), adaptive=True)
        return cls(np.zeros(shape), identity(shape, as_positive(ridge, "ridge")))

    @classmethod
    def normal(cls, mean: Any, precision: Any) -> Prior:
        """Return a prior with this mean and precision, for example from an earlier experiment."""
        centre = as_numbers(mean, "mean").astype(np.float64)
        matrix = as_numbers(precision, "precision").astype(np.float64)
        if centre.ndim != 1 or len(centre) == 0 or matrix.shape != (len(centre), len(centre)):
            message = f"a mean of shape {centre.shape} needs a square precision of the same size"
            raise InvalidInput(f"{message}, got shape {matrix.shape}", precision)
        if not (np.isfinite(centre).all() and np.isfinite(matrix).all()):
            raise InvalidInput("the prior's mean and precision must be finite", (mean, precision))
        if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
            raise InvalidInput("the prior's precision must be symmetric", precision)
        least = float(np.linalg.eigvalsh(matrix)[0])
        if least <= 0:
            message = "the prior's precision must be positive definite; its smallest eigenvalue is"
            message = f"{message} {least:g}"
            raise InvalidInput(message, precision)
        return cls(centre, 0.5 * (matrix + matrix.T))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prior):
            return NotImplemented
        is_equal = np.array_equal(self.mean, other.mean)
        return (
            is_equal
            and np.array_equal(self.precision, other.precision)
            and self.adaptive == other.adaptive
        )

    def __hash__(self) -> int:
        return hash((self.mean.tobytes(), self.precision.tobytes(), self.adaptive))

    @property
    def dim(self) -> int:
        """Number of coefficients."""
        return self.mean.size

    @property
    def is_ridge(self) -> bool:
        """Whether the mean is zero and the precision is a multiple of I.

        If the variance of rewards is estimated, such a prior applies to θ/√φ, so it does not depend
        on the unit of rewards. Other priors apply to θ.
        """
        scaled = identity(self.mean.shape, self.strength)
        return not self.mean.any() and np.array_equal(self.precision, scaled)

    @property
    def strength(self) -> float:
        """Precision of the first coefficient; in a ridge, all coefficients have this precision."""
        return float(self.precision.flat[0])

    def in_blocks(self, shape: Shape) -> Prior:
        """Return this prior for coefficients in blocks.

        Raises:
            InvalidInput: the precision correlates coefficients of different blocks.
        """
        if self.mean.shape == shape or len(shape) == 1:
            return self
        blocks, size = shape
        whole = self.precision.reshape(blocks, size, blocks, size)
        within = whole[np.arange(blocks), :, np.arange(blocks)]
        if np.count_nonzero(within) < np.count_nonzero(whole):
            message = "the prior's precision connects coefficients of different actions"
            raise InvalidInput(f"{message}: set its entries between actions to 0", self.precision)
        return Prior(self.mean.reshape(shape), within, self.adaptive)

    def with_ridge(self, ridge: float) -> Prior:
        """Return this adaptive prior with a different precision."""
        return Prior(self.mean, identity(self.mean.shape, ridge), True, self.others)
