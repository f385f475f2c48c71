"""Features with one θ for all actions."""

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
    """One θ for all actions, so that the rewards of one action inform the others.

    A row holds a 1, the numbers of the context, the numbers of the action, and the product of each
    number of the context with each number of the action. Without products, the context cannot
    change which action is best. If fields are encoded, the context and the action, each together
    with the 1, are scaled to a norm of about 1.

    Args:
        context: the fields of the context, with an encoder for each, as in :class:`PerArm`. If you
            scale the numbers yourself, pass only the names of the columns, or their number.
        action: the fields of an action's record, in the same form.
        intercept: whether rows begin with a 1.
        interactions: whether rows end with the products.
        catalogue: records of actions, by id. They are encoded once, and requests can offer these
            actions by id, without a record. If a request has a record, its fields override those of
            the catalogue. A request that names no actions offers all actions of the catalogue. The
            catalogue is not part of the fingerprint, because it does not change the meaning of
            rows.

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

    context: Fields = field(default=(), compare=False)  # _description also compares the order
    action: Fields = field(compare=False)
    intercept: bool = True
    interactions: bool = True
    catalogue: Mapping[Any, Context] | None = field(default=None, repr=False, compare=False)

    #: Number of columns of a row.
    dim: int = field(init=False, repr=False, compare=False)
    _description: tuple[object, object] = field(init=False, repr=False)
    _context: Columns | EncodedColumns = field(init=False, repr=False, compare=False)
    _action: Columns | EncodedColumns = field(init=False, repr=False, compare=False)
    #: The catalogue with its encoded records.
    encoded: Catalogue | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        context, action = columns_of(self.context, "context"), columns_of(self.action, "action")
        if action.width == 0:
            message = f"`action` is {self.action!r}: name at least one field, because otherwise"
            raise InvalidInput(f"{message} all rows would be the same", self.action)
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
        """Names of the columns."""
        context, action = self._context.labels, self._action.labels
        products = [f"{c} × {a}" for c in context for a in action] if self.interactions else []
        return ["intercept"] * self.intercept + context + action + products

    @property
    def field_counts(self) -> Mapping[str, dict[str, int]]:
        """Number of values that this process has encoded; see :attr:`PerArm.field_counts`.

        Names of fields are prefixed with "context" or "action".
        """
        parts = {"context": self._context, "action": self._action}
        return {
            f"{part} {name}": counts
            for part, columns in parts.items()
            for name, counts in columns.counts.items()
        }

    @property
    def noticed(self) -> Noticed:
        """Unknown and clipped values, by kind and field, named as in ``field_counts``."""
        parts = {"context": self._context, "action": self._action}
        return {
            (kind, f"{part} {name}"): summary
            for part, columns in parts.items()
            for (kind, name), summary in columns.noticed.items()
        }

    @property
    def fingerprint(self) -> str:
        """Digest of the fields and options."""
        return digest("Shared", *self._description, self.intercept, self.interactions)

    def extends(self, older: Features | str) -> bool:
        """Return whether ``older`` is identical: added columns would not be 0 in older rows."""
        return fingerprint_of(older) == self.fingerprint

    def fit(self, contexts: Any = None, actions: Any = None, *, limit: int = LIMIT) -> Shared:
        """Return these features with encoders for the named fields, chosen from samples.

        Args:
            contexts: a list of mappings, or a pandas or polars data frame; not needed if
                ``context`` already has encoders.
            actions: records of actions, in the same form, or a mapping of ids to records.
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
        """Return one row per action; ``actions`` maps ids to records, or lists catalogue ids."""
        ids = as_actions(actions)
        if self.encoded is None and not isinstance(actions, Mapping):
            message = "`actions` must be a mapping of ids to records, unless the features have a"
            raise InvalidInput(f"{message} catalogue; got {shown(actions)}", actions)
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
        # Every column is an entry of (1, z) times an entry of (1, a). All columns are computed in a
        # single BLAS product, which is exact because each column of the right matrix has only one
        # nonzero entry.
        count = A.shape[1]
        first = self.intercept + len(z)
        places = np.arange(count)
        factors = np.zeros((1 + count, self.dim), dtype=np.float32)
        # Values that overflow float32 become inf or nan here, and are reported by later checks.
        with np.errstate(over="ignore", invalid="ignore"):
            inputs = np.array([self._context.unit, *z], dtype=np.float32)
            factors[0, :first] = inputs[not self.intercept :]
            factors[1 + places, first + places] = inputs[0]
            if self.interactions:
                products = factors[1:, first + count :].reshape(count, len(z), count)  # a view
                products[places, :, places] = inputs[1:]
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
        message = f"{where} must be from {-MAX_ENTRY:g} to {MAX_ENTRY:g}, got {value:g}"
        raise InvalidInput(message, value)


def with_catalogue(features: Features | None, path: str) -> Shared:
    """Return features with a catalogue from a JSON file, which has a record for each action."""
    if not isinstance(features, Shared):
        message = 'a catalogue needs features = "Shared(…)", because other features ignore records'
        raise InvalidInput(message, path)
    try:
        records = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        message = f"cannot read the catalogue {path!r} ({error}): pass the path of a JSON object"
        raise InvalidInput(f"{message} with a record for each action", path) from None
    return replace(features, catalogue=records)


_set = object.__setattr__
