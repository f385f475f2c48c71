"""One θ for all actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import MAX_ENTRY, Row, as_rows
from belated.exceptions import InvalidInput
from belated.features.catalogue import Catalogue
from belated.features.columns import Columns, Noticed
from belated.features.encoders import EncodedColumns, Fields, columns_of
from belated.features.fitting import LIMIT, fitted
from belated.features.protocol import Features, digest, fingerprint_of
from belated.features.records import Actions, Context, as_actions, shown


@dataclass(frozen=True, kw_only=True)
class Shared:
    """One θ for all actions: what is learned of one tells about the others.

    A row is 1, the numbers of the context, those of the action, and the product of each of the
    former with each of the latter. Products are what lets the context change which action is best.
    If fields are encoded, context and action are scaled to a length of about 1 each, with the 1.

    Args:
        context: the fields read from the context: how each is encoded, as for
            :class:`PerArm`; or, for numbers that you have scaled, their names or how many.
        action: the fields read from an action's record, in the same way.
        intercept: whether rows begin with a 1.
        interactions: whether they end with the products.
        catalogue: records of actions by their ids. They are encoded once, so that requests may
            offer these actions by name, without a record; fields of a record that comes with a
            request replace those of the catalogue. A request that names no actions offers all.
            What the rows mean does not depend on it: the catalogue is not part of the fingerprint.

    >>> features = Shared(context=["age"], action=["price"])
    >>> features.names
    ['intercept', 'context age', 'action price', 'context age × action price']
    >>> features.rows({"age": 4.0}, {"blue": {"price": 0.5}, "red": {"price": 2.0}})
    array([[1. , 4. , 0.5, 2. ],
           [1. , 4. , 2. , 8. ]], dtype=float32)
    >>> offers = {"blue": {"price": 0.5}, "red": {"price": 2.0}}
    >>> features = Shared(context=["age"], action=["price"], catalogue=offers)
    >>> features.rows({"age": 4.0}, ["red"])
    array([[1., 4., 2., 8.]], dtype=float32)
    """

    context: Fields = field(default=(), compare=False)  # _description has their order too
    action: Fields = field(compare=False)
    intercept: bool = True
    interactions: bool = True
    catalogue: Mapping[Any, Context] | None = field(default=None, repr=False, compare=False)

    #: The width of a row.
    dim: int = field(init=False, repr=False, compare=False)
    _description: tuple[object, object] = field(init=False, repr=False)
    _context: Columns | EncodedColumns = field(init=False, repr=False, compare=False)
    _action: Columns | EncodedColumns = field(init=False, repr=False, compare=False)
    #: The same records with their numbers.
    encoded: Catalogue | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        context, action = columns_of(self.context, "context"), columns_of(self.action, "action")
        if action.width == 0:
            message = f"action is {self.action!r}: without a number the rows would all be the same"
            raise InvalidInput(message, self.action)
        products = context.width * action.width * bool(self.interactions)
        _set(self, "action", action.spec)
        _set(self, "context", context.spec)
        _set(self, "intercept", bool(self.intercept))
        _set(self, "interactions", bool(self.interactions))
        _set(self, "dim", bool(self.intercept) + context.width + action.width + products)
        _set(self, "_description", (context.description, action.description))
        _set(self, "_context", context)
        _set(self, "_action", action)
        _set(self, "encoded", None)
        if self.catalogue is not None:
            _set(self, "catalogue", dict(self.catalogue))
            _set(self, "encoded", Catalogue(self.catalogue, action))

    @property
    def names(self) -> list[str]:
        """What the columns hold."""
        context, action = self._context.labels, self._action.labels
        products = [f"{c} × {a}" for c in context for a in action] if self.interactions else []
        return ["intercept"] * self.intercept + context + action + products

    @property
    def field_counts(self) -> Mapping[str, dict[str, int]]:
        """How many values this process has encoded, as :attr:`PerArm.field_counts`.

        The name of a field follows "context" or "action".
        """
        parts = {"context": self._context, "action": self._action}
        return {
            f"{what} {name}": counts
            for what, columns in parts.items()
            for name, counts in columns.counts.items()
        }

    @property
    def noticed(self) -> Noticed:
        """Values that are unknown or clipped, by kind and field, named as in the counts."""
        parts = {"context": self._context, "action": self._action}
        return {
            (kind, f"{what} {name}"): found
            for what, columns in parts.items()
            for (kind, name), found in columns.noticed.items()
        }

    @property
    def fingerprint(self) -> str:
        """A digest of the names and options."""
        return digest("Shared", *self._description, self.intercept, self.interactions)

    def extends(self, older: Features | str) -> bool:
        """Whether ``older`` is the same: a new column would stand in old rows, and not be zero."""
        return fingerprint_of(older) == self.fingerprint

    def fit(self, contexts: Any = None, actions: Any = None, *, limit: int = LIMIT) -> Shared:
        """The same, with the fields that are named encoded as samples suggest.

        Args:
            contexts: a list of mappings, or a frame of pandas or polars; not needed if ``context``
                says how each field is encoded.
            actions: records of actions, in the same way, or a mapping of ids to records.
            limit: as in :meth:`PerArm.fit`.

        >>> features = Shared(action=["brand"]).fit(actions={1: {"brand": "A"}, 2: {"brand": "B"}})
        >>> features.action
        {'brand': Category(values=('A', 'B'), others=1)}
        """
        records = list(actions.values()) if isinstance(actions, Mapping) else actions
        return Shared(
            context=fitted(self.context, contexts, "context", limit),
            action=fitted(self.action, records, "action", limit),
            intercept=self.intercept,
            interactions=self.interactions,
            catalogue=self.catalogue,
        )

    def rows(self, context: Context, actions: Actions) -> Row:
        """One row for each action; ``actions`` maps ids to records, or names the catalogue's."""
        ids = as_actions(actions)
        if self.encoded is None and not isinstance(actions, Mapping):
            expected = "a mapping of ids to records was expected, for their numbers"
            raise InvalidInput(f"actions is {shown(actions)}: {expected}", actions)
        z = self._context.numbers(context, "the context")
        A: NDArray[Any]
        if self.encoded is None:
            A = self._action.table(ids, list(actions.values()))  # type: ignore[union-attr]
        else:
            A = self.encoded.numbers(ids, actions)
        rows = self._products(z, A)
        try:
            return as_rows(rows, self.dim)
        except InvalidInput:
            self._refuse(ids, z, A, rows)
            raise

    def _products(self, z: NDArray[Any], A: NDArray[Any]) -> Row:
        # Every column is a factor from (1, z) times one from (1, a). As a product by BLAS, with one
        # factor and zeros in each column of the right matrix, it is exact and takes one pass.
        count = A.shape[1]
        first = self.intercept + len(z)
        places = np.arange(count)
        factors = np.zeros((1 + count, self.dim), dtype=np.float32)
        # What float32 cannot hold becomes inf or nan here, and is refused by its name after.
        with np.errstate(over="ignore", invalid="ignore"):
            left = np.array([self._context.unit, *z], dtype=np.float32)
            factors[0, :first] = left[not self.intercept :]
            factors[1 + places, first + places] = left[0]
            if self.interactions:
                products = factors[1:, first + count :].reshape(count, len(z), count)  # a view
                products[places, :, places] = left[1:]
            right = np.empty((len(A), 1 + count), dtype=np.float32)
            right[:, 0] = self._action.unit
            right[:, 1:] = A
            rows: Row = right @ factors
        return rows

    def _refuse(
        self, ids: Sequence[int | str], z: NDArray[Any], A: NDArray[Any], rows: Row
    ) -> None:
        self._context.check(z, "the context")
        for id, numbers in zip(ids, A, strict=True):
            self._action.check(numbers, f"action {id!r}")
        at, column = np.argwhere(~(np.abs(rows) <= MAX_ENTRY))[0]
        value = float(rows[at, column])
        where = f"{self.names[column]} of action {ids[at]!r}"
        raise InvalidInput(f"{where} is {value:g}: at most {MAX_ENTRY:g} in size", value)


def with_catalogue(features: Features | None, path: str) -> Shared:
    """Return the same features with the catalogue in a JSON file: a record for each action."""
    if not isinstance(features, Shared):
        raise InvalidInput('a catalogue needs features = "Shared(…)", which read its records', path)
    try:
        records = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        message = f"{path!r} cannot be read ({error}): a JSON object"
        raise InvalidInput(f"{message} with a record for each action was expected", path) from None
    return replace(features, catalogue=records)


_set = object.__setattr__
