"""Features that hash records with arbitrary names and values into a fixed number of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY, Row, as_dim, as_rows, must_be
from belated.exceptions import InvalidInput
from belated.features.protocol import Features, digest, fingerprint_of
from belated.features.records import (
    MAX_TEXT,
    Actions,
    Context,
    as_actions,
    as_record,
    is_number,
    long_text,
    shown,
)

Words = NDArray[np.uint64]

#: Number of feature pairs that are crossed at once, so that their arrays fit into the CPU cache.
AT_ONCE = 1 << 14
#: Maximum length of a string whose hash is cached, in characters; maximum number of cached hashes.
CACHED_TEXT, CACHED_WORDS = 64, 1 << 15


@dataclass(frozen=True)
class Hashed:
    r"""Records hashed into ``dim`` columns (feature hashing); names need not be known in advance.

    A number adds its value to the column for its name, text adds 1 to the column for its name and
    value, and the id of an action adds 1 to the column for that id. The column and the sign are
    taken from a digest (blake2b), so they are the same in every process. Colliding features add up.

    With :math:`m` hashed columns, the product of two rows is unbiased over seeds,
    :math:`\mathbb E\,\varphi(x)^\top\varphi(y) = x^\top y`, and has the variance

    .. math:: \frac1m \sum_{i \ne j} \bigl(x_i^2 y_j^2 + x_i y_i\,x_j y_j\bigr).

    The squared norm of a row therefore has a relative standard deviation of at most
    :math:`\sqrt{2/m}`. If :math:`n` features are in use, a share of about :math:`1 - e^{-n/m}`
    collides with another feature. (Weinberger et al., *Feature Hashing for Large Scale Multitask
    Learning*, 2009.)

    Args:
        dim: number of columns of a row.
        seed: seed of the hash; different seeds produce different collisions.
        interactions: whether each feature of the context is crossed with the id and with each
            feature of the action. Without interactions, the context cannot change which action is
            best.
        intercept: whether the first column is always 1 and excluded from hashing.

    >>> features = Hashed(6)
    >>> features.rows({"age": 0.5, "city": "Oslo"}, ["blue", "red"])
    array([[ 1. , -0.5,  0. , -0.5, -1. ,  0. ],
           [ 1. , -1.5, -2. , -0.5,  0. ,  0. ]], dtype=float32)
    """

    dim: int
    _: KW_ONLY
    seed: int = 0
    interactions: bool = True
    intercept: bool = True

    def __post_init__(self) -> None:
        seed = self.seed
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            raise must_be("seed", "an integer", seed)
        _set(self, "dim", as_dim(self.dim))
        _set(self, "seed", int(seed))
        _set(self, "interactions", bool(self.interactions))
        _set(self, "intercept", bool(self.intercept))
        if self.dim <= self.intercept:
            raise must_be("dim", "at least 2, because the intercept needs a column", self.dim)

    @property
    def names(self) -> None:
        """None, because a column may hold several features."""
        return None

    @property
    def fingerprint(self) -> str:
        """Digest of the options."""
        return digest("Hashed", self.dim, self.seed, self.interactions, self.intercept)

    def extends(self, older: Features | str) -> bool:
        """Return whether ``older`` is identical; other settings hash to different columns."""
        return fingerprint_of(older) == self.fingerprint

    def rows(self, context: Context, actions: Actions) -> Row:
        """Return one row for each action. No name is required; a missing field adds nothing."""
        ids = as_actions(actions)
        records = actions.values() if isinstance(actions, Mapping) else [None] * len(ids)
        c_words, c_values = self._features("context", context, "the context")
        words, values, owners = [], [], []
        for row, (id, record) in enumerate(zip(ids, records, strict=True)):
            a_words, a_values = self._features("action", record, f"action {id!r}")
            words += [_word(self.seed, "id", id, None), *a_words]
            values += [1.0, *a_values]
            owners += [row] * (1 + len(a_words))

        c, a = np.array(c_words, dtype=np.uint64), np.array(words, dtype=np.uint64)
        z, v = np.array(c_values), np.array(values)
        start = np.array(owners) * self.dim  # offset of each feature's row
        columns, signed = self._placed(a, v)
        flat = np.bincount(columns + start, signed, len(ids) * self.dim)
        if self.interactions:
            # Add a few context features at a time, so that memory does not grow with the pairs.
            step = max(1, AT_ONCE // len(a))
            for at in range(0, len(c), step):
                part = slice(at, at + step)
                columns, signed = self._placed(_crossed(c[part], a), np.multiply.outer(z[part], v))
                np.add.at(flat, (columns + start).ravel(), signed.ravel())
        table = flat.reshape(len(ids), self.dim)
        columns, signed = self._placed(c, z)
        table += np.bincount(columns, signed, self.dim)
        if self.intercept:
            table[:, 0] = 1.0
        return as_rows(table, self.dim)

    def _features(self, kind: str, given: Any, who: str) -> tuple[list[int], list[float]]:
        words, values = [], []
        for name, value in _by_name(as_record(given, who), who):
            if len(name) > MAX_TEXT:
                raise long_text(f"a name of {who}", name)
            if isinstance(value, str):
                if len(value) > MAX_TEXT:
                    raise long_text(f"{name!r} of {who}", value)
                words.append(_word(self.seed, kind, name, str.__str__(value)))
                values.append(1.0)
            elif is_number(value):
                words.append(_word(self.seed, kind, name, None))
                values.append(float(value))
            else:
                message = f"{name!r} of {who} must be text or a finite number from {-MAX_ENTRY:g}"
                raise InvalidInput(f"{message} to {MAX_ENTRY:g}, got {shown(value)}", value)
        return words, values

    def _placed(
        self, words: Words, values: NDArray[np.float64]
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return each feature's column, and its value with the sign from the hash's last bit."""
        hashed = np.uint64(self.dim - self.intercept)
        columns = ((words >> np.uint64(1)) % hashed).astype(np.intp) + self.intercept
        return columns, np.where(words & np.uint64(1), -values, values)


def _word(seed: int, kind: str, name: int | str, value: str | None) -> int:
    """Return the 64-bit hash of a feature; hashes of long strings are not cached."""
    if len(value or "") > CACHED_TEXT or (isinstance(name, str) and len(name) > CACHED_TEXT):
        return _new_word(seed, kind, name, value)
    return _cached_word(seed, kind, name, value)


def _new_word(seed: int, kind: str, name: int | str, value: str | None) -> int:
    shown_name = _quoted(name) if isinstance(name, str) else name
    shown_value = "null" if value is None else _quoted(value)
    key = f'[{seed},"{kind}",{shown_name},{shown_value}]'.encode("ascii")  # JSON
    state = hashlib.blake2b(key, digest_size=8, person=b"belated.hashed")
    return int.from_bytes(state.digest(), "little")


_cached_word = lru_cache(maxsize=CACHED_WORDS)(_new_word)


def _crossed(c: Words, a: Words) -> Words:
    """Return a hash for each pair, independent of both hashes (mixed by splitmix64's finalizer)."""
    words = c[:, None] + a * np.uint64(0x9E3779B97F4A7C15)  # modulo 2^64
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed


def _by_name(record: Mapping[str, Any], who: str) -> list[tuple[str, Any]]:
    # Sort names, so that colliding features are added in the same order for every record.
    for name in record:
        if not isinstance(name, str):
            raise InvalidInput(f"field names of {who} must be text, got {shown(name)}", name)
    return sorted(record.items(), key=_first)


def _first(item: tuple[str, Any]) -> str:
    return item[0]


_set = object.__setattr__
