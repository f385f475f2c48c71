"""What decisions of a journal were chosen from, as far as it was kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Matrix, Row, Vector
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES, Mask, Times
from belated.exceptions import NotEvaluable
from belated.features import Actions, Features
from belated.fold.requests import KeptRequest
from belated.journals import Journal
from belated.model.blocks import unblocked

#: Requests read at a time.
PAGE = 1_000


@dataclass(frozen=True, eq=False)
class Offers:
    """The rows on offer of all decisions, one decision after the other.

    Attributes:
        rows: of all actions, float32.
        starts: where the rows of each decision begin.
        chosen: which of all rows each decision chose.
        propensity: probability of each row at the choice.
        actions: name of the action of each row.
        kept: probability with which the request of each decision was kept.
        blocks: of coefficients, if a row is of one of them.
    """

    rows: Row
    starts: Times
    chosen: Times
    propensity: Vector
    actions: NDArray[Any]
    kept: Vector
    blocks: int | None = None

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of actions of each decision."""
        found: NDArray[np.int64] = np.diff(self.starts, append=len(self.rows))
        return found

    @property
    def design(self) -> Matrix:
        """The rows over all coefficients."""
        return unblocked(self.rows, self.blocks)

    def sums(self, values: Vector) -> Vector:
        """The sum of a number of each row, over the rows of each decision."""
        if not len(self.starts):
            return np.zeros(0)
        return np.add.reduceat(values, self.starts)

    def select(self, which: Mask) -> Self:
        """The offers of some decisions."""
        rows = np.repeat(which, self.counts)
        counts = self.counts[which]
        starts = np.cumsum(counts) - counts
        return type(self)(
            rows=self.rows[rows],
            starts=starts,
            chosen=starts + (self.chosen - self.starts)[which],
            propensity=self.propensity[rows],
            actions=self.actions[rows],
            kept=self.kept[which],
            blocks=self.blocks,
        )


def read_requests(journal: Journal, table: JournalTable) -> Iterator[tuple[int, bytes]]:
    """The lines of a table whose request was kept, each with its bytes; by partition."""
    for partition in np.unique(table.partition).tolist():
        lines = np.flatnonzero(table.partition == partition)
        for start in range(0, len(lines), PAGE):
            some = lines[start : start + PAGE]
            positions = table.position[some].tolist()
            found = journal.requests(partition, positions)
            for line, position in zip(some.tolist(), positions, strict=True):
                if position in found:
                    yield line, found[position]


def evaluable(table: JournalTable) -> JournalTable:
    """The decisions that the policy made, and that took effect."""
    live = table.live()
    return live.select(live.source == SOURCES.index("policy"))


def read_offers(
    journal: Journal, table: JournalTable, features: Features | None
) -> tuple[Mask, Offers]:
    """Return which decisions have a request, and what they were chosen from.

    Args:
        journal: of the decisions.
        table: of the decisions.
        features: that make rows of contexts, if there are any.

    Raises:
        NotEvaluable: nothing was kept, or not with what probability actions were chosen.
    """
    kept = np.zeros(len(table), dtype=np.bool_)
    found: dict[int, tuple[Row, list[float], list[int | str], float]] = {}
    places = np.zeros(len(table), dtype=np.int64)
    for line, data in read_requests(journal, table):
        request = KeptRequest.read(data)
        rows = _rows(request, features)
        names = request.actions or list(range(len(rows)))
        place = request.place(int(table.index[line]), table.actions[table.action[line]])
        shares = _shares(request, place, float(table.propensity[line]), len(rows))
        found[line] = rows, shares, names, request.share
        places[line] = place
        kept[line] = True
    if not found:
        message = f"of {len(table):,} decisions none has kept its request"
        raise NotEvaluable(
            f"{message}: make the bandit with keep_requests='auto', and evaluate what it decides"
            " from then on"
        )
    lines = [found[line] for line in np.flatnonzero(kept).tolist()]
    counts = np.array([len(rows) for rows, _, _, _ in lines], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    return kept, Offers(
        rows=np.concatenate([rows for rows, _, _, _ in lines]),
        starts=starts,
        chosen=starts + places[kept],
        propensity=np.concatenate([np.array(shares) for _, shares, _, _ in lines]),
        actions=np.array([name for _, _, names, _ in lines for name in names], dtype=object),
        kept=np.array([share for _, _, _, share in lines]),
        blocks=getattr(features, "blocks", None),
    )


def _rows(request: KeptRequest, features: Features | None) -> Row:
    if request.rows is not None:
        return request.rows
    if features is None:
        message = "the journal has contexts, and nothing to make rows of them"
        raise NotEvaluable(f"{message}: pass the features of the bandit")
    actions: Actions = request.actions or []
    if request.records is not None:
        actions = dict(zip(request.actions or [], request.records, strict=True))
    return features.rows(request.context, actions)


def _shares(request: KeptRequest, index: int, propensity: float, count: int) -> list[float]:
    if request.propensities is not None:
        return request.propensities
    if propensity < 1.0:
        message = "the policy that decided did not say the probability of every action"
        raise NotEvaluable(
            f"{message}: give it a floor, such as 0.02, and evaluate what it decides from then on"
        )
    return [float(place == index) for place in range(count)]
