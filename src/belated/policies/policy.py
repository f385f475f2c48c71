"""The base class of policies, and the choice that a policy returns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from itertools import accumulate
from typing import Any, Literal, Self

import msgspec
import numpy as np

from belated.core.inputs import Matrix, Row, Vector, as_dim, as_rounds, check_made, must_be
from belated.core.times import Duration, as_duration, duration_us
from belated.exceptions import InvalidInput
from belated.model.blocks import Shape, width_of
from belated.model.estimators import Estimator, Laplace, Online
from belated.model.families import Bernoulli, Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.policies.fingerprint import UNNAMED, fingerprint

#: Maximum size of a matrix over the coefficients, in bytes. A learner holds several such matrices.
MAX_BYTES = 2 << 30


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A chosen row.

    Attributes:
        index: index of the chosen row.
        propensity: the probability with which this policy chooses the row, given the model.
        mean: predicted mean reward of the row.
        weight: the information g'(η)/φ that the row's reward will add, fixed when it is chosen.
        shares: the probability of each row, if the policy knows all of them at no extra cost. The
            probabilities are stored with the decision's request.
    """

    index: int
    propensity: float
    mean: float
    weight: float
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Policy:
    """Base class of policies: the settings of learning and exploration that all policies share.

    A custom policy is a frozen dataclass with a :meth:`choose` method. It declares what it requires
    of the learner with ``pending_weight``, ``metric`` and :attr:`learns_after`, and caches values
    derived from a model in :attr:`Model.derived <belated.model.model.Model.derived>`. To make it
    available in commands and files, call :func:`belated.expressions.register`.

    Args:
        dim: number of features in a row; 0 means the number given by the bandit's features.
        family: family of the rewards.
        ridge: precision of the prior around zero. "auto" starts at 1 and, if the estimator fits all
            observations, weakens the prior when effects turn out to be strong.
        prior: a prior mean and precision, instead of ``ridge``.
        pending_weight: the fraction of its information that a pending decision adds, from 0 to 1.
        metric: "hessian" adds g'(η) x xᵀ; "gram" adds x xᵀ as in the paper.
        floor: share of decisions that explore, with equal probability for each action. Off-policy
            estimates require a floor.
        estimator: estimator of θ.
        half_life: the age at which a rewarded or pending decision has half the weight of a new one,
            as a timedelta or text such as "7d". "auto" compares several half-lives and uses the
            longest that predicts as well as the best. None means that weights do not decay.
        learn_after: number of further decisions before the model learns from a reward, even if the
            reward arrives sooner; the model learns from later rewards immediately. Use this if good
            and bad rewards have different delays, so that the model learns from all of them at
            about the same age. None means that the model learns from each reward on arrival.
        blocks: number of blocks of coefficients, if each row belongs to one block; set by the
            bandit from its features. None means that a row covers all coefficients.
        features: fingerprint of the features that encode rows, set by the bandit; empty if callers
            pass rows.

    >>> from belated import Bernoulli
    >>> @dataclass(frozen=True)
    ... class First(Policy):
    ...     def choose(self, model, rows, rng):
    ...         mean, weight = model.predict(rows[0])
    ...         return Choice(0, 1.0, mean, weight)
    >>> policy = First(2, Bernoulli())
    >>> policy.choose(Model(policy.start, policy.family), np.eye(2), np.random.default_rng()).mean
    0.5
    """

    dim: int = 0
    family: Family = field(default_factory=Bernoulli)
    _: KW_ONLY
    ridge: float | Literal["auto"] = "auto"
    prior: Prior | None = None
    pending_weight: float = 1.0
    metric: Literal["hessian", "gram"] = "hessian"
    floor: float = 0.0
    estimator: Estimator = field(default_factory=Laplace)
    half_life: Duration | Literal["auto"] | None = field(default=None, metadata=UNNAMED)
    learn_after: int | None = field(default=None, metadata=UNNAMED)
    blocks: int | None = field(default=None, repr=False, metadata=UNNAMED)
    features: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.dim != 0:
            as_dim(self.dim)
        families = "Bernoulli()", "Gaussian()", "Poisson()"
        check_made(self.family, "family", needs="support", example=families[0], names=families)
        check_made(self.estimator, "estimator", needs="fit", example="Laplace()")
        as_share(self.pending_weight, "pending_weight")
        as_share(self.floor, "floor")
        if self.metric not in ("hessian", "gram"):
            raise must_be("metric", "'hessian' or 'gram'", self.metric)
        if self.prior is None:
            Prior.ridge(1, self.ridge)  # validates `ridge` without allocating the whole matrix
        elif self.dim and self.start.dim != self.dim:
            message = f"the prior has {self.start.dim} coefficients, but rows have {self.dim}"
            raise InvalidInput(f"{message} numbers: pass a prior of the same size", self.start)
        self._check_half_life()
        if self.learn_after is not None:
            as_rounds(self.learn_after, "learn_after")

    def _check_half_life(self) -> None:
        if self.half_life is None:
            return
        if self.half_life != "auto":
            object.__setattr__(self, "half_life", as_duration(self.half_life, "half_life"))
        if self.metric == "gram" or isinstance(self.estimator, Online):
            message = f"half_life={self.half_life!r} needs metric='hessian' and an estimator that"
            message = f"{message} fits all observations, such as Laplace()"
            raise InvalidInput(message, self.half_life)

    @property
    def half_life_us(self) -> int | None:
        """The half-life in microseconds; None if there is none or if it is "auto"."""
        return duration_us(self.half_life) if isinstance(self.half_life, timedelta) else None

    @cached_property
    def shape(self) -> Shape:
        """The shape of θ: the number of coefficients, or of blocks and of coefficients in each.

        Raises:
            InvalidInput: the number of features in a row is not set.
        """
        if self.dim == 0:
            message = f"the number of features in a row is not set: pass {type(self).__name__}(dim)"
            raise InvalidInput(f"{message}, or pass features to the bandit", self.dim)
        return (self.dim,) if self.blocks is None else (self.blocks, self.dim // self.blocks)

    @cached_property
    def row_width(self) -> int:
        """Number of values in a row, including its block if there are blocks."""
        return width_of(self.shape)

    @cached_property
    def start(self) -> Prior:
        """The prior that learning starts from."""
        size = 8 * self.dim * self.shape[-1]
        if size > MAX_BYTES:
            message = f"{self.dim:,} coefficients need matrices of {size / 2**30:,.0f} GiB each"
            remedy = "use fewer, as in Hashed(4096), or a small matrix per action, as with PerArm"
            raise InvalidInput(f"{message}: {remedy}", self.dim)
        if self.prior is None:
            return Prior.ridge(self.shape, self.ridge)
        return self.prior.in_blocks(self.shape)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the policy and its settings, which must match between learner and deciders."""
        return fingerprint(self)

    def bound_to(self, features: Any) -> Self:
        """Return this policy for rows from ``features``.

        Args:
            features: features of a bandit or an environment; None if callers pass rows.

        Raises:
            InvalidInput: the number of features in a row differs from ``dim``, or is unknown.
        """
        dim = math.prod(self.shape) if features is None else features.dim
        if self.dim not in (0, dim):
            message = f"policy.dim is {self.dim}, but rows have {dim} numbers: omit `dim`"
            raise InvalidInput(message, self)
        blocks, encoded_by = getattr(features, "blocks", None), getattr(features, "fingerprint", "")
        if (dim, blocks, encoded_by) == (self.dim, self.blocks, self.features):
            return self
        return replace(self, dim=dim, blocks=blocks, features=encoded_by)

    @property
    def learns_after(self) -> int | None:
        """Number of decisions until a reward is used for learning; None means on arrival."""
        return self.learn_after

    @property
    def learns_late(self) -> bool:
        """Whether the model learns from rewards that arrive after ``learns_after`` decisions."""
        return True

    def choose(self, model: Model, rows: Any, rng: np.random.Generator) -> Choice:
        """Choose one of the rows."""
        raise NotImplementedError

    def choose_all(
        self,
        model: Model,
        rows: Row | Matrix,
        ends: Sequence[int],
        counted: Sequence[bool],
        rng: np.random.Generator,
    ) -> list[Choice]:
        """Choose from several tables of rows in turn, adding each decision as pending.

        For a single table, the result and the random draws are the same as with :meth:`choose`. If
        a choice fails, the decisions before it remain pending in the model.

        Args:
            model: the model to choose with; the decisions are pending in it afterwards.
            rows: the rows of all tables, concatenated.
            ends: the index after the last row of each table.
            counted: whether each decision is pending immediately.
            rng: random generator for the choices.
        """
        if len(ends) == 1:
            return [self._choose_one(model, rows, counted[0], rng)]
        choices, start = [], 0
        for end, pending in zip(ends, counted, strict=True):
            choices.append(self._choose_one(model, rows[start:end], pending, rng))
            start = end
        return choices

    def _choose_one(
        self, model: Model, rows: Row | Matrix, counted: bool, rng: np.random.Generator
    ) -> Choice:
        choice = self.choose(model, rows, rng)
        if counted:
            self.add_pending(model, rows[choice.index], choice.weight)
        return choice

    def add_pending(self, model: Model, row: Vector | Row, weight: float) -> None:
        """Add a pending decision to the model, with the weight of its choice."""
        if self.pending_weight == 0.0:
            model.note(row)
        else:
            model.add_pending(row, self.share(weight))

    def share(self, weight: float) -> float:
        """Return the weight of a pending decision in the information matrix H."""
        return self.pending_weight * (1.0 if self.metric == "gram" else weight)

    def mixed(self, model: Model, rows: Any, rng: np.random.Generator, shares: Vector) -> Choice:
        """Draw a row with the probabilities ``shares``, mixed with the floor."""
        propensities = ((1.0 - self.floor) * shares + self.floor / len(shares)).tolist()
        sums = list(accumulate(propensities))
        index = min(bisect_right(sums, rng.random() * sums[-1]), len(propensities) - 1)
        while propensities[index] == 0.0:  # due to rounding at the end of the sum
            index -= 1
        mean, weight = model.predict(rows[index])
        return Choice(index, propensities[index], mean, weight, tuple(propensities))


def as_share(value: float, name: str) -> None:
    """Raise InvalidInput unless ``value`` is a number from 0 to 1."""
    if not isinstance(value, int | float | np.number) or not 0.0 <= value <= 1.0:
        raise must_be(name, "a number from 0 to 1", value)
