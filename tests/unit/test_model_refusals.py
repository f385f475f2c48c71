import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.exceptions import InvalidInput
from belated.model import kernels
from belated.model.families import Family
from belated.model.model import Model
from belated.model.priors import Prior

Busy = Callable[[Family], Model]
FAMILIES: list[Family] = [Gaussian(0.25), Bernoulli(), Poisson()]
#: Rewards that are no rewards of a family.
OUTSIDE = [
    *((family, y) for family in FAMILIES for y in (math.nan, math.inf, -math.inf)),
    *((Bernoulli(), -0.5), (Bernoulli(), 1.5), (Poisson(), -0.5)),
]


@pytest.fixture(params=["plain", "compiled"])
def busy(request: pytest.FixtureRequest) -> Busy:
    """Models with some history, on either set of kernels."""
    chosen = kernels.plain() if request.param == "plain" else kernels.compiled()

    def model(family: Family) -> Model:
        rng = np.random.default_rng(4)
        instance = Model(Prior.ridge(3), family, kernels=chosen)
        for _ in range(20):
            x = rng.normal(size=3)
            instance.add_pending(x, instance.argmax_ucb([x], 1.0)[3])
            instance.learn(x, float(rng.integers(0, 2)))
        return instance

    return model


def _state(model: Model) -> list[Any]:
    """All there is to a model, bit for bit."""
    parts = (model.theta, model.observed, model.decided)
    return [*(part.tobytes() for part in parts), model.n, model.pending, model.dispersion]


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e200])
@pytest.mark.parametrize("verb", ["add_pending", "remove_pending", "learn", "retract", "revise"])
def test_a_row_that_is_not_finite_changes_nothing(
    busy: Busy, family: Family, verb: str, value: float
) -> None:
    """It is refused with InvalidInput, and every bit of the model stays as it was."""
    model, twin = busy(family), busy(family)
    numbers = (1.0, 0.25) if verb in ("revise", "retract") else (1.0,)
    for at in range(3):
        x = np.array([0.1, 0.2, 0.3])
        x[at] = value
        with pytest.raises(InvalidInput):
            getattr(model, verb)(x, *numbers)
    assert _state(model) == _state(twin)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("width", [0.0, 1.0])
def test_a_row_that_is_not_finite_is_not_chosen_from(
    busy: Busy, value: float, width: float
) -> None:
    """Upper refuses the whole table, wherever the row stands and whatever the width."""
    model, twin = busy(Bernoulli()), busy(Bernoulli())
    for at in np.ndindex(3, 3):
        rows = np.eye(3)
        rows[at] = value
        with pytest.raises(InvalidInput):
            model.argmax_ucb(rows, width)
    assert _state(model) == _state(twin)


@pytest.mark.parametrize(("family", "y"), OUTSIDE, ids=repr)
@pytest.mark.parametrize("verb", ["learn", "retract", "revise to", "revise from"])
def test_a_reward_outside_the_support_changes_nothing(
    busy: Busy, family: Family, y: float, verb: str
) -> None:
    """NaN and infinities for any family, and what it cannot have: refused without a trace."""
    model, twin = busy(family), busy(family)
    numbers = {
        "learn": (y,),
        "retract": (y, 0.25),
        "revise to": (1.0, y),
        "revise from": (y, 1.0),
    }[verb]
    with pytest.raises(InvalidInput):
        getattr(model, verb.partition(" ")[0])([0.1, 0.2, 0.3], *numbers)
    assert _state(model) == _state(twin)


@pytest.mark.parametrize("verb", ["add_pending", "remove_pending", "learn", "retract", "revise"])
@pytest.mark.parametrize("width", [2, 4])
def test_a_row_of_different_width_changes_nothing(busy: Busy, width: int, verb: str) -> None:
    """Shorter and longer rows are errors on either set of kernels, not numbers from elsewhere."""
    model, twin = busy(Bernoulli()), busy(Bernoulli())
    x = np.full(8, 0.5)[:width]  # a view: what lies behind it is ours to read
    numbers = (1.0, 0.25) if verb in ("revise", "retract") else (1.0,)
    with pytest.raises(ValueError):  # noqa: PT011 - InvalidInput, or an error of NumPy's
        getattr(model, verb)(x, *numbers)
    with pytest.raises(ValueError):  # noqa: PT011
        model.argmax_ucb([x], 1.0)
    assert _state(model) == _state(twin)


@pytest.mark.parametrize("weight", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("verb", ["add_pending", "remove_pending", "retract"])
def test_a_weight_that_is_not_finite_changes_nothing(busy: Busy, verb: str, weight: float) -> None:
    """No decision is pending, and no reward was learned, with a weight that is no number."""
    model, twin = busy(Bernoulli()), busy(Bernoulli())
    numbers = (1.0,) if verb == "retract" else ()
    with pytest.raises(InvalidInput):
        getattr(model, verb)([0.1, 0.2, 0.3], *numbers, weight)
    assert _state(model) == _state(twin)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_every_other_verb_refuses_it_too(busy: Busy, value: float) -> None:
    """Predicting, counting one or many, learning a share; the model stays as it was."""
    model, twin = busy(Bernoulli()), busy(Bernoulli())
    row, wrong_row = np.array([0.1, 0.2, 0.3]), np.array([0.1, value, 0.3])
    calls: list[Callable[[], object]] = [
        lambda: model.predict(np.array([0.1, math.nan, 0.3])),
        lambda: model.count(wrong_row, 1.0),
        lambda: model.note(np.array([0.1, math.inf, 0.3])),
        lambda: model.learn(wrong_row, 1.0, 0.5),
        lambda: model.add_all_pending(np.array([row, wrong_row]), np.ones(2)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput):
            call()
    assert _state(model) == _state(twin)


def test_a_share_of_nothing_teaches_nothing(busy: Busy) -> None:
    """Its weight is 0."""
    model, twin = busy(Bernoulli()), busy(Bernoulli())
    assert model.learn(np.array([0.1, 0.2, 0.3]), 1.0, 0.0) == 0.0
    model.n, model.pending = twin.n, twin.pending  # it is counted all the same
    assert _state(model) == _state(twin)
