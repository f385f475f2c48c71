"""The point at which all partitions expand their log-likelihoods."""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from belated.core.inputs import Vector
from belated.fold.published import PublishedModel
from belated.model.blocks import Shape
from belated.model.estimators.conversion_law import EDGES, ConversionLaw


class Center(NamedTuple):
    """The θ at which all partitions expand their log-likelihoods, and the data it is based on.

    Attributes:
        theta: θ.
        number: the number of the center, which increases with each change; 0 without any data.
        n: number of rewards; under ``ConversionsOnly``, of decisions with a known outcome.
        law: the delay distribution at which partitions expand, under ``ConversionsOnly``.
        decisions: number of decisions; 0 if observations are not weighted by age.
        at: time of the sums, in microseconds since 1970; 0 if observations are not weighted by age.
    """

    theta: Vector
    number: int = 0
    n: int = 0
    law: ConversionLaw | None = None
    decisions: int = 0
    at: int = 0

    def write(self) -> bytes:
        """Encode the center for :attr:`PublishedModel.center`."""
        law = () if self.law is None else (self.law.shares, self.law.deviations)
        numbers = np.concatenate([[self.decisions, self.at], self.theta.ravel(), *law])
        return numbers.astype("<f8").tobytes()

    @classmethod
    def read(cls, model: PublishedModel, shape: Shape) -> Self | None:
        """Return the center of a published model; None if it has none of this shape."""
        dim, size = math.prod(shape), len(EDGES)
        numbers = np.frombuffer(model.center, dtype="<f8")
        if len(numbers) not in (2 + dim, 2 + dim + 2 * size):
            return None
        theta, law_numbers = numbers[2 : 2 + dim].reshape(shape).copy(), numbers[2 + dim :]
        decisions, at = numbers[:2].astype(np.int64).tolist()
        law = ConversionLaw(*law_numbers.reshape(2, size)) if len(law_numbers) else None
        return cls(theta, model.center_number, model.center_n, law, decisions, at)
