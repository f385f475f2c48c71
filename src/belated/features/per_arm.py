"""Each action its own θ."""

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

#: How many different offers are remembered with the places of their blocks.
OFFERS = 256
#: Actions that an error names.
SHOWN = 10


@dataclass(frozen=True)
class PerArm:
    """Each action its own block of θ: nothing is assumed to be alike between actions.

    The row of an action is the number of its block, a 1, and the numbers of the context. If fields
    are encoded, what follows the number of the block is scaled to a length of about 1. Records of
    the actions themselves are not read.

    Args:
        actions: the ids of all actions there are so far, in the order of their blocks.
        context: the fields read from the context: how each is encoded, as in
            ``{"age": Number(18, 90), "country": Category(["AT", "DE"]), "member": Flag()}``. For
            numbers that you have scaled: their names, or how many.
        intercept: whether a block begins with a 1.
        renamed: new names of actions, by the names that decisions in the journal have. Leave them
            there: they are part of what the features are.

    >>> from belated.features import Number
    >>> features = PerArm(["blue", "red"], context={"age": Number(18, 90)})
    >>> features.names
    ['blue: intercept', 'blue: age', 'red: intercept', 'red: age']
    >>> features.rows({"age": 72}, ["red", "blue"]).round(2)
    array([[1.  , 0.71, 0.71],
           [0.  , 0.71, 0.71]], dtype=float32)

    Actions that come later get their blocks at the end, so that older rows stay valid:

    >>> larger = features.grown(["green"])
    >>> larger.dim, larger.extends(features), features.extends(larger)
    (6, True, False)
    """

    actions: Sequence[int | str]
    _: KW_ONLY
    context: Fields = field(default=(), compare=False)  # _description has its order too
    intercept: bool = True
    renamed: Mapping[Any, int | str] = field(default_factory=dict, hash=False)

    #: How many coefficients there are.
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
            message = f"context is {self.context!r}: a block needs numbers, or an intercept"
            raise InvalidInput(message, self.context)
        for old, new in self.renamed.items():
            if new not in ids or old in ids:
                message = f"renamed has {old!r}: {new!r}, and actions are {ids!r}: give old names"
                raise InvalidInput(f"{message} that are no actions, each with its new one", old)
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
        """One for each action."""
        return len(self.actions)

    @property
    def block(self) -> int:
        """The width of one action's block."""
        return self.intercept + self._columns.width

    @property
    def names(self) -> list[str]:
        """What the columns hold."""
        block = ["intercept"] * self.intercept + (self._columns.names or self._columns.labels)
        return [f"{id}: {name}" for id in self.actions for name in block]

    @property
    def field_counts(self) -> Mapping[str, dict[str, int]]:
        """How many values of each encoded field this process has seen, by what they were.

        >>> from belated.features import Category
        >>> features = PerArm(["blue", "red"], context={"country": Category(["AT", "DE"])})
        >>> rows = [features.rows({"country": country}, ["red"]) for country in ("AT", "FR", None)]
        >>> features.field_counts
        {'country': {'ok': 1, 'missing': 1, 'unknown': 1, 'clipped': 0, 'refused': 0}}
        """
        return self._columns.counts

    @property
    def noticed(self) -> Noticed:
        """Values that are unknown or clipped, by kind and field."""
        return self._columns.noticed

    @property
    def fingerprint(self) -> str:
        """A digest of the ids in their order, the names and the options."""
        return self._lineage[-1]

    @cached_property
    def _lineage(self) -> list[str]:
        # The fingerprints with the first action alone, the first two, and so on up to all.
        renamed = [sorted([str(old), str(new)] for old, new in self.renamed.items())]
        block = ("PerArm", self._description, self.intercept, *(renamed if self.renamed else []))
        return list(digests([block, *self.actions]))[1:]

    def extends(self, older: Features | str) -> bool:
        """Whether ``older`` has the same blocks, up to those that were added at the end."""
        return fingerprint_of(older) in self._lineage

    def grown(self, actions: Sequence[int | str]) -> PerArm:
        """The same with blocks at the end for new actions; those already known keep theirs."""
        new = [id for id in as_ids(actions, "actions") if id not in self._places]
        return replace(self, actions=[*self.actions, *new])

    def fit(self, sample: Any, *, limit: int = LIMIT) -> PerArm:
        """The same, with the fields that ``context`` names encoded as a sample suggests.

        Text becomes a :class:`Category` of the values that occur, True and False a :class:`Flag`,
        numbers a :class:`Number` from the sample's 1% to its 99% quantile, times a
        :class:`Datetime` in UTC, and lists of numbers a :class:`Vector`.

        Args:
            sample: contexts: a list of mappings, or a frame of pandas or polars.
            limit: values of a category with a column of their own; if there are more, the most
                frequent have one, and the others share some.

        >>> sample = [{"age": 20, "country": "AT"}, {"age": 60, "country": "DE"}]
        >>> PerArm(["mail", "call"], context=["age", "country"]).fit(sample).context
        {'age': Number(low=20.4, high=59.6), 'country': Category(values=('AT', 'DE'), others=1)}
        """
        context = fitted(self.context, sample, "context", limit)
        return replace(self, context=context)

    def rows(self, context: Context, actions: Actions) -> Row:
        """One row for each action: the number of its block, then the context."""
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
        """Return what :meth:`rows` returns for each of several contexts, one below the other."""
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
            known = ", ".join(map(repr, self.actions[:SHOWN])) + ", …" * (self.blocks > SHOWN)
            message = f"unknown action {unknown!r}; known actions: {known}"
            raise InvalidInput(f"{message}. To add it, append it to the actions of PerArm", unknown)
        blocks = np.array([self._places[id] for id in ids], dtype=np.intp)
        if len(self._offers) >= OFFERS:
            self._offers.clear()
        # With the ids of the features: equal texts of callers need not be kept.
        self._offers[tuple(self.actions[at] for at in blocks)] = blocks
        return blocks


_set = object.__setattr__
