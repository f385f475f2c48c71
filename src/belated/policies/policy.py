"""What every policy is, and what it returns."""

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

from belated.core.inputs import Matrix, Row, Vector, as_dim, as_rounds, check_made
from belated.core.times import Duration, as_duration, duration_us
from belated.exceptions import InvalidInput
from belated.model.blocks import Shape, width_of
from belated.model.estimators import Estimator, Laplace, Online
from belated.model.families import Bernoulli, Family
from belated.model.model import Model
from belated.model.priors import Prior
from belated.policies.fingerprint import UNNAMED, fingerprint

#: The largest matrix over the coefficients, in bytes; a learner holds several.
MAX_BYTES = 2 << 30


class Choice(msgspec.Struct, frozen=True, gc=False):
    """One chosen row.

    Attributes:
        index: its place among the rows.
        propensity: the probability with which this policy chooses it, given the model.
        mean: its predicted mean reward.
        weight: the information g'(η)/φ it will bring, frozen from now on.
        shares: the probability of each row, if the policy knows them all without further work;
            they are kept with the decision's request.
    """

    index: int
    propensity: float
    mean: float
    weight: float
    shares: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Policy:
    """What all policies share: how θ is learned, and how much of it is mere exploration.

    A policy of your own is a frozen dataclass with :meth:`choose`. It tells the learner what it
    needs with ``pending_weight``, ``metric`` and :attr:`learns_after`, and caches what it derives
    from a model in :attr:`Model.derived <belated.model.model.Model.derived>`. Name it in commands
    and files with :func:`belated.expressions.register`.

    Args:
        dim: the width of a row; 0: that of the features of the bandit.
        family: of the rewards.
        ridge: the precision of the prior around zero; "auto" starts at 1 and makes it weaker as
            effects turn out strong, where the estimator fits all observations.
        prior: a prior mean and precision, instead of ``ridge``.
        pending_weight: how much of its information a pending decision counts for, from 0 to 1.
        metric: "hessian" counts g'(η) x xᵀ, "gram" the paper's x xᵀ.
        floor: the share of decisions that explore, each action being equally likely; off-policy
            estimates need it.
        estimator: of θ.
        half_life: after so long a decision counts for half of what a new one does, whether its
            reward has arrived or is pending: a timedelta, or text such as "7d". "auto" compares
            several and takes the longest that predicts as well as the best. None: nothing is
            forgotten.
        learn_after: decisions that follow before a reward is learned, however soon it came; one
            that comes later is learned when it comes. Where good rewards come sooner than bad ones,
            or later, all are then learned at about the same age. None: when they come.
        blocks: how many blocks of coefficients there are, of which a row touches one; a bandit
            takes it from its features. None: a row touches all coefficients.
        features: fingerprint of the features that make rows; a bandit takes it from them. Empty:
            callers pass rows.

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
            raise InvalidInput(f"metric is {self.metric!r}: 'hessian' or 'gram'", self.metric)
        if self.prior is None:
            Prior.ridge(1, self.ridge)  # checked; over all coefficients it may be too large
        elif self.dim and self.start.dim != self.dim:
            message = f"a prior of {self.start.dim} numbers for rows of {self.dim}"
            raise InvalidInput(message, self.start)
        self._check_half_life()
        if self.learn_after is not None:
            as_rounds(self.learn_after, "learn_after")

    def _check_half_life(self) -> None:
        if self.half_life is None:
            return
        if self.half_life != "auto":
            object.__setattr__(self, "half_life", as_duration(self.half_life, "half_life"))
        if self.metric == "gram" or isinstance(self.estimator, Online):
            message = f"half_life is {self.half_life!r}: it needs metric='hessian', and an"
            message = f"{message} estimator that fits all observations, such as Laplace()"
            raise InvalidInput(message, self.half_life)

    @property
    def half_life_us(self) -> int | None:
        """The half-life in microseconds, if one is given."""
        return duration_us(self.half_life) if isinstance(self.half_life, timedelta) else None

    @cached_property
    def shape(self) -> Shape:
        """The shape of θ: one number, or blocks and coefficients of each.

        Raises:
            InvalidInput: the width of a row is not known yet.
        """
        if self.dim == 0:
            message = f"{type(self).__name__} does not know how many numbers a row has"
            raise InvalidInput(f"{message}: pass dim=, or give the bandit features", self.dim)
        return (self.dim,) if self.blocks is None else (self.blocks, self.dim // self.blocks)

    @cached_property
    def row_width(self) -> int:
        """How many numbers a row has."""
        return width_of(self.shape)

    @cached_property
    def start(self) -> Prior:
        """The prior that learning starts from."""
        size = 8 * self.dim * self.shape[-1]
        if size > MAX_BYTES:
            message = f"{self.dim:,} coefficients need matrices of {size / 2**30:,.0f} GiB each"
            remedy = "use fewer, as in Hashed(4096), or PerArm, with a small matrix for each action"
            raise InvalidInput(f"{message}: {remedy}", self.dim)
        if self.prior is None:
            return Prior.ridge(self.shape, self.ridge)
        return self.prior.in_blocks(self.shape)

    @cached_property
    def fingerprint(self) -> str:
        """Names the policy with all its settings: learner and deciders must agree on it."""
        return fingerprint(self)

    def bound_to(self, features: Any) -> Self:
        """Return the same policy for the rows that features make.

        Args:
            features: of a bandit, or an environment; None if callers pass rows.

        Raises:
            InvalidInput: the policy is for rows of another width, or of an unknown one.
        """
        dim = math.prod(self.shape) if features is None else features.dim
        if self.dim not in (0, dim):
            message = f"policy.dim is {self.dim}, but rows have {dim} numbers: leave out dim"
            raise InvalidInput(message, self)
        blocks, made_by = getattr(features, "blocks", None), getattr(features, "fingerprint", "")
        if (dim, blocks, made_by) == (self.dim, self.blocks, self.features):
            return self
        return replace(self, dim=dim, blocks=blocks, features=made_by)

    @property
    def learns_after(self) -> int | None:
        """Decisions that follow before a reward is learned; None: it is learned when it comes."""
        return self.learn_after

    @property
    def learns_late(self) -> bool:
        """Whether a reward is learned that comes after these decisions."""
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
        """Choose from one table of rows after the other, and expect each before the next.

        One table alone is chosen from as :meth:`choose` does, with the same draws. If one of
        several fails, those before it stay counted in the model.

        Args:
            model: the decisions are pending in it afterwards.
            rows: of all tables, one after the other.
            ends: where each table ends.
            counted: whether each decision is pending at once.
            rng: of the choices.
        """
        if len(ends) == 1:
            return [self._choose_one(model, rows, counted[0], rng)]
        found, start = [], 0
        for end, pending in zip(ends, counted, strict=True):
            found.append(self._choose_one(model, rows[start:end], pending, rng))
            start = end
        return found

    def _choose_one(
        self, model: Model, rows: Row | Matrix, counted: bool, rng: np.random.Generator
    ) -> Choice:
        choice = self.choose(model, rows, rng)
        if counted:
            self.add_pending(model, rows[choice.index], choice.weight)
        return choice

    def add_pending(self, model: Model, row: Vector | Row, weight: float) -> None:
        """A decision is pending; its weight is that of its choice."""
        if self.pending_weight == 0.0:
            model.note(row)
        else:
            model.add_pending(row, self.share(weight))

    def share(self, weight: float) -> float:
        """What a pending decision counts for in H."""
        return self.pending_weight * (1.0 if self.metric == "gram" else weight)

    def mixed(self, model: Model, rows: Any, rng: np.random.Generator, shares: Vector) -> Choice:
        """Draw from ``shares``, a probability for each row, mixed with the floor."""
        each = ((1.0 - self.floor) * shares + self.floor / len(shares)).tolist()
        sums = list(accumulate(each))
        index = min(bisect_right(sums, rng.random() * sums[-1]), len(each) - 1)
        while each[index] == 0.0:  # rounding at the very end of the sum
            index -= 1
        mean, weight = model.predict(rows[index])
        return Choice(index, each[index], mean, weight, tuple(each))


def as_share(value: float, name: str) -> None:
    """Refuse what is not a probability."""
    if not isinstance(value, int | float | np.number) or not 0.0 <= value <= 1.0:
        raise InvalidInput(f"{name} is {value!r}: a number from 0 to 1 was expected", value)
