import math
from typing import Any

import numpy as np
import pytest

from belated.exceptions import InvalidInput
from belated.model.priors import AUTO_RANGE, AUTO_START, Prior


def test_a_ridge_is_a_multiple_of_the_identity_around_zero() -> None:
    """Mean zero, precision ridge on the diagonal, not adaptive."""
    prior = Prior.ridge(3, 2.5)
    assert prior.dim == 3
    assert prior.mean.tolist() == [0.0, 0.0, 0.0]
    assert prior.precision.tolist() == [[2.5, 0.0, 0.0], [0.0, 2.5, 0.0], [0.0, 0.0, 2.5]]
    assert not prior.adaptive
    assert Prior.ridge(1).precision.tolist() == [[1.0]]


def test_an_automatic_ridge_starts_in_its_range() -> None:
    """It is adaptive and begins with the stated precision."""
    prior = Prior.ridge(2, "auto")
    assert prior.adaptive
    assert prior.precision.tolist() == [[AUTO_START, 0.0], [0.0, AUTO_START]]
    assert AUTO_RANGE[0] < AUTO_START == AUTO_RANGE[1]  # it only becomes weaker


@pytest.mark.parametrize(
    "ridge",
    [0.0, -1.0, math.nan, math.inf, "automatic", "1.0", None, [1.0], 10**400],
    ids=lambda value: repr(value)[:20],
)
def test_a_ridge_that_is_not_positive_is_refused(ridge: Any) -> None:
    """The error carries the value."""
    with pytest.raises(InvalidInput, match="`ridge` must be") as error:
        Prior.ridge(2, ridge)
    assert error.value.value is ridge


@pytest.mark.parametrize("dim", [0, -2, 1.5, "2", None, True])
def test_a_width_that_is_no_whole_number_is_refused(dim: Any) -> None:
    """The width is an int from 1."""
    with pytest.raises(InvalidInput, match="`dim` must be"):
        Prior.ridge(dim)


def test_a_normal_prior_is_what_was_given() -> None:
    """Mean and precision are kept as copies, in float64."""
    mean = np.array([1, 2])
    precision = np.array([[2.0, 0.5], [0.5, 1.0]])
    prior = Prior.normal(mean, precision)
    mean[0], precision[0, 0] = 9, 9.0
    assert prior.mean.tolist() == [1.0, 2.0]
    assert prior.precision.tolist() == [[2.0, 0.5], [0.5, 1.0]]
    assert not prior.adaptive


def test_a_precision_that_is_symmetric_to_rounding_is_made_symmetric() -> None:
    """What an inversion leaves behind does not matter, and is evened out."""
    prior = Prior.normal([0.0, 0.0], [[2.0, 0.5 + 1e-15], [0.5, 1.0]])
    assert prior.precision[0, 1] == prior.precision[1, 0] == pytest.approx(0.5, abs=1e-14)


REFUSED: list[tuple[Any, Any]] = [
    ([0.0], [[1.0, 0.0], [0.0, 1.0]]),
    ([0.0, 0.0], [1.0, 1.0]),
    ([[0.0]], [[1.0]]),
    (0.0, 1.0),
    ([0.0], 1.0),
    ([math.nan], [[1.0]]),
    ([math.inf], [[1.0]]),
    ([0.0], [[math.nan]]),
    ([0.0], [[math.inf]]),
    ([0.0], [[0.0]]),
    ([0.0], [[-1.0]]),
    ([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]),
    ([0.0, 0.0], [[1.0, 1.0], [1.0, 1.0]]),
    ([0.0, 0.0], [[1.0, 0.5], [0.0, 1.0]]),
    ([0.0, 0.0], [[1e-9, 5e-10], [0.0, 1e-9]]),
    ([0.0, 0.0], [[1.0, 0.0], [0.0]]),
    (["a"], [[1.0]]),
    ([0.0], [["a"]]),
    ([1j], [[1.0]]),
    ([], np.empty((0, 0))),
    (None, None),
]


@pytest.mark.parametrize(("mean", "precision"), REFUSED, ids=repr)
def test_what_is_no_normal_distribution_is_refused(mean: Any, precision: Any) -> None:
    """Shapes that differ, numbers that are not finite, asymmetry, and no positive definiteness."""
    with pytest.raises(InvalidInput):
        Prior.normal(mean, precision)


def test_the_least_eigenvalue_is_named() -> None:
    """Whoever reads the error sees how far from positive definite the matrix is."""
    with pytest.raises(InvalidInput, match="its smallest eigenvalue is -1"):
        Prior.normal([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]])


def test_an_estimated_ridge_replaces_the_precision_only() -> None:
    """The mean and the adaptiveness stay, and the old prior is not changed."""
    prior = Prior.ridge(2, "auto")
    fitted = prior.with_ridge(0.3)
    assert fitted.adaptive
    assert fitted.precision.tolist() == [[0.3, 0.0], [0.0, 0.3]]
    assert fitted.mean.tolist() == prior.mean.tolist()
    assert prior.precision[0, 0] == AUTO_START


def test_priors_are_equal_by_their_numbers() -> None:
    """Mean, precision and whether it is estimated; equal ones have one hash."""
    prior = Prior.normal([0.5, 0.0], [[2.0, 0.1], [0.1, 3.0]])
    same = Prior.normal([0.5, 0.0], [[2.0, 0.1], [0.1, 3.0]])
    different = [
        Prior.normal([0.4, 0.0], [[2.0, 0.1], [0.1, 3.0]]),
        Prior.normal([0.5, 0.0], [[2.0, 0.2], [0.2, 3.0]]),
        Prior.ridge(2),
        Prior.ridge(2, "auto"),  # the same numbers, to begin with
    ]
    assert (prior, hash(prior)) == (same, hash(same))
    assert len({prior, same, *different}) == 5
    assert prior != "a prior"
