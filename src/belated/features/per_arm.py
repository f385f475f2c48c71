"""Features with a separate θ for each action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Row, as_row, as_rows
from belated.exceptions import InvalidInput
from belated.features.columns import Columns, Noticed
from belated.features.encoders import EncodedColumns, Fields, columns_of
from belated.features.fitting import LIMIT, fitted
from belated.features.protocol import Features, digests, fingerprint_of
from belated.features.records import Actions, Context, as_actions, as_ids

#: Maximum number of action lists for which the block numbers are cached.
OFFERS = 256
#: Maximum number of actions that an error message lists.
SHOWN = 10


@dataclass(frozen=True)
class PerArm:
    """A separate block of θ for each action, without assuming that actions are similar.

    The row of an action holds its block number, a 1, and the numbers of the context. If fields are
    encoded, the values after the block number are scaled to a norm of about 1. Records of the
    actions are not read.

    Args:
        actions: the ids of all actions so far, in the order of their blocks.
        context: the fields of the context, with an encoder for each, as in
            ``{"age": Number(18, 90), "country": Category(["AT", "DE"]), "member": Flag()}``. If you
            scale the numbers yourself, pass only the names of the columns, or their number.
        intercept: whether a block begins with a 1.
        renamed: new names of actions, by the old names used for decisions in the journal. Do not
            remove entries, because they are part of the fingerprint.

    >>> from belated.features import Number
    >>> features = PerArm(["blue", "red"], context={"age": Number(18, 90)})
    >>> features.names
    ['blue: intercept', 'blue: age', 'red: intercept', 'red: age']
    >>> features.rows({"age": 72}, ["red", "blue"]).round(2)
    array([[1.  , 0.71, 0.71],
           [0.  , 0.71, 0.71]], dtype=float32)

    Blocks of new actions are added at the end, so that older rows remain valid:

    >>> larger = features.with_actions(["green"])
    >>> larger.dim, larger.extends(features), features.extends(larger)
    (6, True, False)
    """

    actions: Sequence[int | str]
    _: KW_ONLY
    context: Fields = field(default=(), compare=False)  # _description also compares the order
    intercept: bool = True
    renamed: Mapping[Any, int | str] = field(default_factory=dict, hash=False)

    #: Number of coefficients.
    dim: int = field(init=False, repr=False, compare=False)
    _description: object = field(init=False, repr=False)
    _columns: Columns | EncodedColumns = field(init=False, repr=False, compare=False)
    _places: dict[int | str, int] = field(init=False, repr=False, compare=False)
    _offers: dict[tuple[int | str, ...], NDArray[np.intp]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        columns = columns_of(self.context, "context")
        ids = as_actions(self.actions)
        if not self.intercept and columns.width == 0:
            message = f"`context` is {self.context!r}: name at least one field, or use an intercept"
            raise InvalidInput(message, self.context)
        for old, new in self.renamed.items():
            if new not in ids or old in ids:
                message = f"`renamed` has {old!r}: {new!r}, but `actions` is {ids!r}: map each old"
                raise InvalidInput(
                    f"{message} name to a name in `actions`, and remove the old name", old
                )
        _set(self, "renamed", dict(self.renamed))
        _set(self, "actions", ids)
        _set(self, "context", columns.spec)
        _set(self, "intercept", bool(self.intercept))
        _set(self, "dim", len(ids) * (self.intercept + columns.width))
        _set(self, "_description", columns.description)
        _set(self, "_columns", columns)
        _set(self, "_places", {id: at for at, id in enumerate(ids)})
        _set(self, "_offers", {})

    def __repr__(self) -> str:
        renamed = f", renamed={self.renamed!r}" if self.renamed else ""
        fields = f"actions={self.actions!r}, context={self.context!r}, intercept={self.intercept!r}"
        return f"PerArm({fields}{renamed})"

    @property
    def blocks(self) -> int:
        """Number of blocks, one for each action."""
        return len(self.actions)

    @property
    def block(self) -> int:
        """Number of columns in one action's block."""
        return self.intercept + self._columns.width

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        block = ["intercept"] * self.intercept + (self._columns.names or self._columns.labels)
        return [f"{id}: {name}" for id in self.actions for name in block]

    @property
    def field_counts(self) -> Mapping[str, dict[str, int]]:
        """Number of values of each field that this process has encoded, by outcome.

        >>> from belated.features import Category
        >>> features = PerArm(["blue", "red"], context={"country": Category(["AT", "DE"])})
        >>> rows = [features.rows({"country": country}, ["red"]) for country in ("AT", "FR", None)]
        >>> features.field_counts
        {'country': {'ok': 1, 'missing': 1, 'unknown': 1, 'clipped': 0, 'refused': 0}}
        """
        return self._columns.counts

    @property
    def noticed(self) -> Noticed:
        """Unknown and clipped values, by kind and field."""
        return self._columns.noticed

    @property
    def fingerprint(self) -> str:
        """Digest of the ids in order, the fields and the options."""
        return self._lineage[-1]

    @cached_property
    def _lineage(self) -> list[str]:
        # The fingerprints with the first action only, with the first two, and so on.
        renamed = [sorted([str(old), str(new)] for old, new in self.renamed.items())]
        block = ("PerArm", self._description, self.intercept, *(renamed if self.renamed else []))
        return list(digests([block, *self.actions]))[1:]

    def extends(self, older: Features | str) -> bool:
        """Return whether ``older`` has the same blocks, except those added at the end."""
        return fingerprint_of(older) in self._lineage

    def with_actions(self, actions: Sequence[int | str]) -> PerArm:
        """Return these features with new actions appended; known actions keep their blocks."""
        new = [id for id in as_ids(actions, "actions") if id not in self._places]
        return replace(self, actions=[*self.actions, *new])

    def fit(self, sample: Any, *, limit: int = LIMIT) -> PerArm:
        """Return these features with encoders for the fields of ``context``, chosen from a sample.

        Text becomes a :class:`Category` of the values in the sample, True and False a
        :class:`Flag`, numbers a :class:`Number` from the 1% to the 99% quantile of the sample,
        times a :class:`Datetime` in UTC, and lists of numbers a :class:`Vector`.

        Args:
            sample: contexts, as a list of mappings, or a pandas or polars data frame.
            limit: maximum number of values of a categorical field that get their own column. If
                there are more, the most frequent values do, and the remaining values share a few
                columns.

        >>> sample = [{"age": 20, "country": "AT"}, {"age": 60, "country": "DE"}]
        >>> PerArm(["mail", "call"], context=["age", "country"]).fit(sample).context
        {'age': Number(low=20.4, high=59.6), 'country': Category(values=('AT', 'DE'), others=1)}
        """
        context = fitted(self.context, sample, "context", limit)
        return replace(self, context=context)

    def rows(self, context: Context, actions: Actions) -> Row:
        """Return one row for each action, with its block number followed by the context."""
        ids = as_actions(actions)
        blocks = self._offers.get(ids)
        if blocks is None:
            blocks = self._remembered(ids)
        numbers = self._columns.numbers(context, "the context")
        try:
            z = as_row(numbers, self._columns.width)
        except InvalidInput:
            self._columns.check(numbers, "the context")
            raise
        rows: Row = np.empty((len(ids), 1 + self.block), dtype=np.float32)
        rows[:, 0] = blocks
        rows[:, 1] = self._columns.unit
        rows[:, 1 + self.intercept :] = z
        return rows

    def tables(self, contexts: Sequence[Context], actions: Actions) -> Row:
        """Return the concatenated rows of several contexts; see :meth:`rows`."""
        ids = as_actions(actions)
        rows: Row = np.empty((len(contexts), len(ids), 1 + self.block), dtype=np.float32)
        rows[:, :, 0] = self._remembered(ids)
        rows[:, :, 1] = self._columns.unit
        if width := self._columns.width:
            numbers = self._columns.table(range(len(contexts)), contexts)
            rows[:, :, 1 + self.intercept :] = as_rows(numbers, width)[:, None]
        return rows.reshape(-1, 1 + self.block)

    def _remembered(self, ids: tuple[int | str, ...]) -> NDArray[np.intp]:
        unknown = next((id for id in ids if id not in self._places), None)
        if unknown is not None:
            names = ", ".join(map(repr, self.actions[:SHOWN])) + ", …" * (self.blocks > SHOWN)
            message = f"unknown action {unknown!r}; known actions: {names}"
            raise InvalidInput(f"{message}. To add it, append it to the actions of PerArm", unknown)
        blocks = np.array([self._places[id] for id in ids], dtype=np.intp)
        if len(self._offers) >= OFFERS:
            self._offers.clear()
        # Use this object's own ids as keys, so that the caller's equal strings can be freed.
        self._offers[tuple(self.actions[at] for at in blocks)] = blocks
        return blocks


_set = object.__setattr__
