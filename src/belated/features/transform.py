"""Features from any object with scikit-learn's ``transform``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from belated.core.inputs import Row, as_dim, as_rows, must_be
from belated.exceptions import InvalidInput
from belated.features.protocol import Features, digest, fingerprint_of
from belated.features.records import Actions, Context, as_actions, as_record


class Transformer(Protocol):
    """The interface that a transformer must have."""

    def transform(self, records: list[dict[str, Any]], /) -> Any:
        """Return one row for each record, as a dense table or one with a ``toarray`` method."""


class FromTransform:
    """Rows from a fitted scikit-learn transformer, or any object with the same ``transform``.

    The transformer receives one record per action, with the fields of the context and of the
    action, and the action's id under "action". The context and an action must not have a field name
    in common. Fields are passed unchanged, and the resulting rows are validated as usual.

    Args:
        transformer: a fitted transformer. It must be deterministic.
        name: identifies the transformer in the fingerprint, because objects cannot be hashed
            reliably. Change the name whenever you fit the transformer again.
        dim: number of columns. If omitted, the transformer must have ``get_feature_names_out``,
            because a bandit needs the number of columns before the first decision.

    >>> class Prices:
    ...     def transform(self, records):
    ...         return [[1.0, r["income"] / r["price"]] for r in records]
    >>> features = FromTransform(Prices(), name="prices, May", dim=2)
    >>> features.rows({"income": 3.0}, {"blue": {"price": 2.0}, "red": {"price": 1.0}})
    array([[1. , 1.5],
           [1. , 3. ]], dtype=float32)
    """

    def __init__(self, transformer: Transformer, *, name: str, dim: int | None = None) -> None:
        if not callable(getattr(transformer, "transform", None)):
            raise must_be("transformer", "an object with a `transform` method", transformer)
        if not isinstance(name, str) or not name:
            raise must_be("name", "text that identifies the transformer", name)
        self._transformer = transformer
        self._name = str.__str__(name)
        self._names = _column_names(transformer, needed=dim is None)
        width = len(self._names) if self._names is not None else dim
        self._dim = as_dim(width if dim is None else dim)
        if self._dim != width:
            raise must_be("dim", f"{width}, the number of columns of the transformer", dim)

    def __repr__(self) -> str:
        return f"FromTransform({self._transformer!r}, name={self._name!r}, dim={self._dim})"

    @property
    def dim(self) -> int:
        """Number of columns."""
        return self._dim

    @property
    def names(self) -> list[str] | None:
        """Names of the columns; None if the transformer does not name them."""
        return None if self._names is None else list(self._names)

    @property
    def fingerprint(self) -> str:
        """Digest of the name and the number of columns."""
        return digest("FromTransform", self._name, self._dim)

    def extends(self, older: Features | str) -> bool:
        """Return whether ``older`` has the same name and number of columns."""
        return fingerprint_of(older) == self.fingerprint

    def rows(self, context: Context, actions: Actions) -> Row:
        """Return one row for each action."""
        ids = as_actions(actions)
        own_records = actions.values() if isinstance(actions, Mapping) else [None] * len(ids)
        common = as_record(context, "the context")
        _refuse_id(common, "the context")
        records = [
            _merged(common, as_record(record, f"action {id!r}"), id)
            for id, record in zip(ids, own_records, strict=True)
        ]
        table = self._transformer.transform(records)
        if hasattr(table, "toarray"):
            table = table.toarray()
        rows = as_rows(table, self._dim)
        if len(rows) != len(ids):
            message = f"the transformer returned {len(rows)} rows for {len(ids)} records"
            raise InvalidInput(f"{message}: it must return one row per record", table)
        return rows.copy()  # the transformer may reuse its own array


def _merged(context: Mapping[str, Any], record: Mapping[str, Any], id: int | str) -> dict[str, Any]:
    _refuse_id(record, f"action {id!r}")
    common = next((name for name in record if name in context), None)
    if common is not None:
        message = f"both the context and action {id!r} have a field {common!r}: rename one"
        raise InvalidInput(message, common)
    return {**context, **record, "action": id}


def _refuse_id(record: Mapping[str, Any], who: str) -> None:
    if "action" in record:
        message = f"{who} has a field 'action', which is reserved for the action's id: rename it"
        raise InvalidInput(message, record["action"])


def _column_names(transformer: Any, *, needed: bool) -> list[str] | None:
    try:
        return [str(name) for name in transformer.get_feature_names_out()]
    except Exception as error:  # a transformer without names, or not fitted, may raise anything
        if needed:
            message = f"the number of columns of {transformer!r} is unknown ({error}): pass dim="
            raise InvalidInput(message, transformer) from error
        return None
