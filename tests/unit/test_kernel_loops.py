"""The loops that a compiler is given, run as Python: each does what the primitive does by BLAS."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from struct import unpack

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg.blas import daxpy, ddot

from belated.core.inputs import Matrix, Vector
from belated.model.kernels.pages import (
    SWAPPED_PAGES,
    crc_all,
    crc_tables,
    hash_of,
    place_of,
    sip_hash,
    sip_state,
    wrapped,
)
from belated.model.kernels.source import (
    SWAPPED,
    left,
    lengths,
    link,
    predictors,
    shift,
    twins,
    winners,
)

State = tuple[Matrix, Vector, Matrix]


@pytest.fixture(params=[0.0, 0.8, 1.0], ids=["dense", "one arm's", "zero"])
def states(request: pytest.FixtureRequest) -> list[State]:
    """Rows, an estimate and a root; of the rows so large a share is zero, as with other arms."""
    return [*_states(np.random.default_rng(4), request.param)]


def _states(rng: np.random.Generator, zeros: float) -> Iterator[State]:
    for dim, arms in ((1, 1), (3, 2), (12, 5), (20, 7)):
        rows = rng.normal(size=(arms, dim))
        for row in rows:
            start = int(rng.integers(dim))
            count = max(round(dim * (1.0 - zeros)), 0)
            row[: min(start, dim - count)] = 0.0
            row[min(start, dim - count) + count :] = 0.0
        yield rows, rng.normal(size=dim), np.triu(rng.normal(size=(dim, dim)))


def test_products(states: list[State]) -> None:
    """Of rows, estimate and root."""
    for rows, theta, root in states:
        for x in rows:
            np.testing.assert_allclose(SWAPPED[left](x, root), left(x, root), atol=1e-12)
            assert SWAPPED[ddot](x, theta) == pytest.approx(ddot(x, theta), abs=1e-12)
        for blocks, thetas, roots in _stacks(rows, theta, root):
            result = SWAPPED[lengths](rows, blocks, roots)
            np.testing.assert_allclose(result, lengths(rows, blocks, roots), atol=1e-12)
            result = SWAPPED[predictors](rows, blocks, thetas)
            np.testing.assert_allclose(result, predictors(rows, blocks, thetas), atol=1e-12)


def _stacks(
    rows: Matrix, theta: Vector, root: Matrix
) -> Iterator[tuple[NDArray[np.int64], Matrix, Matrix]]:
    """The blocks of rows, estimates and roots: of one block, and of three."""
    yield np.zeros(len(rows), dtype=np.int64), theta[None], root[None]
    scales = np.array([1.0, -0.5, 2.0])
    yield np.arange(len(rows)) % 3, np.outer(scales, theta), scales[:, None, None] * root


def test_equal_rows_are_of_the_same_block(states: list[State]) -> None:
    """A row equals itself and its copies; the same numbers in another block are another row."""
    for rows, theta, root in states:
        table = np.concatenate([rows, rows[:1]])
        for blocks, _, _ in _stacks(table, theta, root):
            equal = SWAPPED[twins](table, blocks, 0)
            assert equal[0]
            assert equal.tolist() == twins(table, blocks, 0).tolist()


def test_what_changes_its_arguments(states: list[State]) -> None:
    """The root shifts by the same; a vector gains the same."""
    for rows, theta, root in states:
        for x in rows:
            swapped_root, plain_root = root.copy(), root.copy()
            result, expected = SWAPPED[shift](swapped_root, 0.3, x), shift(plain_root, 0.3, x)
            np.testing.assert_allclose(result, expected, atol=1e-12)
            np.testing.assert_allclose(swapped_root, plain_root, atol=1e-12)
            swapped_theta, plain_theta = theta.copy(), theta.copy()
            SWAPPED[daxpy](x, swapped_theta, len(x), -0.4)
            daxpy(x, plain_theta, len(x), -0.4)
            np.testing.assert_allclose(swapped_theta, plain_theta, atol=1e-12)


def test_winners(states: list[State]) -> None:
    """Of each draw, the first of the best."""
    rng = np.random.default_rng(6)
    for rows, theta, root in states:
        for blocks, thetas, roots in _stacks(rows, theta, root):
            pools = np.ones((len(roots), len(theta) + 1, 50), dtype=np.float32)
            pools[:, :-1] = roots @ rng.normal(size=(len(theta), 50))
            means = predictors(rows, blocks, thetas)
            result = SWAPPED[winners](rows, blocks, means, pools)
            np.testing.assert_array_equal(result, winners(rows, blocks, means, pools))


@pytest.mark.parametrize("family", [0, 1, 2])
def test_links(family: int) -> None:
    """By the number of the family."""
    for eta in (-40.0, -0.3, 0.0, 2.5, 40.0):
        assert SWAPPED[link](family, eta) == link(family, eta)


def test_whole_numbers_wrap() -> None:
    """Those of Python are cut to what 64 bits hold of them."""
    rng = np.random.default_rng(8)
    least, greatest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for _ in range(200):
        high, low, *key_bytes = rng.integers(least, greatest, size=6, endpoint=True)
        state = np.array(key_bytes)
        with np.errstate(over="ignore"):
            hashed = SWAPPED_PAGES[hash_of](high, low, state)
        assert hashed == hash_of(high, low, state)
        assert SWAPPED_PAGES[wrapped](hashed) == wrapped(int(hashed)) == hashed
        shift = int(rng.integers(1, 64))
        assert SWAPPED_PAGES[place_of](hashed, shift) == place_of(hashed, shift)


def test_keys_are_hashed_as_python_hashes_bytes() -> None:
    """By SipHash-1-3, whose key is 0 there if hashes are to be the same in every process."""
    if sys.hash_info.algorithm != "siphash13":
        pytest.skip(f"Python hashes by {sys.hash_info.algorithm}")
    rng = np.random.default_rng(10)
    keys = [rng.bytes(16) for _ in range(50)]
    program = f"print(*map(hash, {keys!r}))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    state = sip_state(0, 0)
    hashes = []
    for key in keys:
        high, low = unpack("<QQ", key)
        hashes.append(wrapped(sip_hash(high, low, *state)))
    assert hashes == list(map(int, run.stdout.split()))
    halves = np.array([unpack("<QQ", key) for key in keys], dtype=np.uint64)
    hashes_at_once = sip_hash(halves[:, 0], halves[:, 1], *state)
    assert hashes_at_once.astype(np.int64).tolist() == hashes


def test_checksums() -> None:
    """Of events of any length, each from a start of its own, as zlib makes them."""
    rng = np.random.default_rng(9)
    sizes = [0, 1, 7, 8, 9, 16, 23, 64, 65]
    events = [rng.bytes(size) for size in sizes]
    starts = rng.integers(0, 1 << 32, size=len(events))
    data = np.frombuffer(b"".join(events), dtype=np.uint8)
    checksums = np.empty(len(events), dtype=np.int64)
    assert crc_all(data, np.cumsum(sizes), starts, crc_tables(), checksums) == len(events)
    expected = [
        zlib.crc32(event, start) for event, start in zip(events, starts.tolist(), strict=True)
    ]
    assert checksums.tolist() == expected
