"""Any object with scikit-learn's ``transform``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from belated.core.inputs import Row, as_dim, as_rows
from belated.exceptions import InvalidInput
from belated.features.protocol import Features, digest, fingerprint_of
from belated.features.records import Actions, Context, as_actions, as_record


class Transformer(Protocol):
    """The one method that is needed."""

    def transform(self, records: list[dict[str, Any]], /) -> Any:
        """A table with one row for each record: dense, or sparse with ``toarray``."""


class FromTransform:
    """Rows from a fitted transformer: scikit-learn's, or any object with its ``transform``.

    It is given one record for each action: the fields of the context and of the action, and the
    action's id under "action". A name that is both the context's and the action's is refused.
    Fields are handed over as they came, and what comes back is checked like any rows.

    Args:
        transformer: fitted. It must give the same row for the same record each time.
        name: stands for the transformer in the fingerprint, as an object cannot be digested
            safely: give another name whenever it is fitted anew.
        dim: the width of its rows. Where it is not given, the transformer must have
            ``get_feature_names_out``: a bandit needs the width before the first decision.

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
            raise InvalidInput(f"{transformer!r} has no method transform", transformer)
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"name is {name!r}: it stands for the transformer", name)
        self._transformer = transformer
        self._name = str.__str__(name)
        self._names = _column_names(transformer, needed=dim is None)
        known = len(self._names) if self._names is not None else dim
        self._dim = as_dim(known if dim is None else dim)
        if self._dim != known:
            raise InvalidInput(f"dim is {dim!r}: the transformer names {known} columns", dim)

    def __repr__(self) -> str:
        return f"FromTransform({self._transformer!r}, name={self._name!r}, dim={self._dim})"

    @property
    def dim(self) -> int:
        """The width of a row."""
        return self._dim

    @property
    def names(self) -> list[str] | None:
        """What the columns hold, where the transformer says so."""
        return None if self._names is None else list(self._names)

    @property
    def fingerprint(self) -> str:
        """A digest of the name and the width."""
        return digest("FromTransform", self._name, self._dim)

    def extends(self, older: Features | str) -> bool:
        """Whether ``older`` has the same name and width."""
        return fingerprint_of(older) == self.fingerprint

    def rows(self, context: Context, actions: Actions) -> Row:
        """One row for each action."""
        ids = as_actions(actions)
        given = actions.values() if isinstance(actions, Mapping) else [None] * len(ids)
        common = as_record(context, "the context")
        _refuse_id(common, "the context")
        records = [
            _merged(common, as_record(own, f"action {id!r}"), id)
            for id, own in zip(ids, given, strict=True)
        ]
        table = self._transformer.transform(records)
        if hasattr(table, "toarray"):
            table = table.toarray()
        rows = as_rows(table, self._dim)
        if len(rows) != len(ids):
            message = f"the transformer gave {len(rows)} rows for {len(ids)} records"
            raise InvalidInput(message, table)
        return rows.copy()  # the transformer may go on to write into its own


def _merged(context: Mapping[str, Any], own: Mapping[str, Any], id: int | str) -> dict[str, Any]:
    _refuse_id(own, f"action {id!r}")
    both = next((name for name in own if name in context), None)
    if both is not None:
        message = f"{both!r} is a name of the context and of action {id!r}: rename one"
        raise InvalidInput(message, both)
    return {**context, **own, "action": id}


def _refuse_id(record: Mapping[str, Any], who: str) -> None:
    if "action" in record:
        message = f"{who} has the name 'action', under which the transformer finds the id"
        raise InvalidInput(message, record["action"])


def _column_names(transformer: Any, *, needed: bool) -> list[str] | None:
    try:
        return [str(name) for name in transformer.get_feature_names_out()]
    except Exception as error:  # whatever a transformer does that is not fitted or has no names
        if needed:
            message = f"the width of {transformer!r} is not known ({error}): give dim"
            raise InvalidInput(message, transformer) from error
        return None
