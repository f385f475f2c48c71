"""The actions offered in a journal's decisions, read from the stored requests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.events import Decision
from belated.core.inputs import Matrix, Row, Vector
from belated.core.results import Shortened
from belated.decider.baselines import UNIFORM
from belated.decider.holdouts import BANDIT, HELD
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import SOURCES, DecisionTable, Mask, Times
from belated.exceptions import NotEvaluable
from belated.features import Features, Shared
from belated.fold.contexts import RowEncoder, read_context
from belated.fold.requests import KeptRequest
from belated.journals import Journal
from belated.model.blocks import unblocked

#: Number of requests read at a time; positions up to ``NEAR`` apart are read in one call.
PAGE, NEAR = 1_000, 100
#: Maximum difference between the computed and the recorded propensity over both groups.
NEAR_SHARE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Offers(Shortened):
    """The rows offered in all decisions, concatenated in the order of the decisions.

    Attributes:
        rows: the rows of all actions, float32.
        starts: index of the first row of each decision.
        chosen: index of the chosen row of each decision, into ``rows``.
        propensity: probability with which each row was chosen; NaN if unknown.
        actions: name of the action of each row.
        kept: probability with which the request of each decision was stored.
        blocks: number of blocks of coefficients, if each row belongs to one block; otherwise None.
        outdated: number of requests omitted because the catalogue of actions has since changed.
    """

    rows: Row
    starts: Times
    chosen: Times
    propensity: Vector
    actions: NDArray[Any]
    kept: Vector
    blocks: int | None = None
    outdated: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of actions offered in each decision."""
        counts: NDArray[np.int64] = np.diff(self.starts, append=len(self.rows))
        return counts

    @property
    def design(self) -> Matrix:
        """The rows with a column for each coefficient."""
        return unblocked(self.rows, self.blocks)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each decision's rows; the end is exclusive."""
        return zip(self.starts.tolist(), (self.starts + self.counts).tolist(), strict=True)

    def by_block(self) -> Iterator[tuple[Times, Matrix]]:
        """Yield the rows of each block of coefficients: their indices, in order, and their values.

        Without blocks, all rows are yielded at once.
        """
        if self.blocks is None:
            yield np.arange(len(self.rows)), self.rows.astype(np.float64)
            return
        blocks = self.rows[:, 0]
        for block in np.unique(blocks):
            places = np.flatnonzero(blocks == block)
            yield places, self.rows[places, 1:].astype(np.float64)

    def sums(self, values: Vector) -> Vector:
        """Return the sum of ``values``, one per row, over the rows of each decision."""
        if not len(self.starts):
            return np.zeros(0)
        return np.add.reduceat(values, self.starts)

    def over_groups(self, table: DecisionTable) -> Self:
        """Return the offers with the propensity of each row over both groups of a holdout.

        Decisions of both groups then have the same weights (the balance heuristic). An unknown
        propensity is NaN, such as for the rows that a holdout decision did not choose.

        Args:
            table: the decisions.
        """
        in_holdout, grouped = table.in_group(HELD), table.in_group(BANDIT)
        chosen, baseline = self.propensity[self.chosen], self._shares_of(table.baseline)
        difference = np.abs(baseline[self.chosen] - chosen)[grouped].sum()
        moved = np.abs(table.overall - chosen)[grouped].sum()
        share = moved / difference if difference > 0.0 else 0.0
        mixed = share * baseline + (1.0 - share) * self.propensity
        propensity = np.where(np.repeat(grouped, self.counts), mixed, self.propensity)
        unknown = in_holdout | ~(np.abs(propensity[self.chosen] - table.overall) <= NEAR_SHARE)
        propensity[np.repeat(unknown, self.counts)] = np.nan
        propensity[self.chosen] = table.overall
        return replace(self, propensity=propensity)

    def _shares_of(self, baseline: str | None) -> Vector:
        """Return the probability of each row under a baseline; NaN if unknown."""
        if baseline is None:
            return np.full(len(self.rows), np.nan)
        if baseline == UNIFORM:
            return np.repeat(1.0 / self.counts, self.counts)
        named = np.array([str(name) == baseline for name in self.actions.tolist()], np.float64)
        first = np.zeros(len(self.rows))
        first[self.starts] = 1.0
        return np.where(np.repeat(self.sums(named) > 0.0, self.counts), named, first)

    def select(self, which: Mask) -> Self:
        """Return the offers of the decisions for which ``which`` is true."""
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
            outdated=self.outdated,
        )


def read_requests(journal: Journal, table: JournalTable) -> Iterator[tuple[int, KeptRequest]]:
    """Yield the row index and the request of each decision with a stored request, by partition."""
    for partition, lines, positions in _pages(table):
        requests = journal.requests(partition, positions)
        stored = [position for position in positions if position in requests]
        decisions = _decisions_at(journal, partition, stored)
        for line, position in zip(lines, positions, strict=True):
            if position in requests:
                yield line, KeptRequest.read(requests[position], decisions.get(position))


def read_contexts(journal: Journal, table: JournalTable) -> Iterator[tuple[int, Any]]:
    """Yield the row index and the context of each decision with a stored context, by partition."""
    for partition, lines, positions in _pages(table):
        decisions = _decisions_at(journal, partition, positions)
        for line, position in zip(lines, positions, strict=True):
            decision = decisions.get(position)
            stored = None if decision is None else read_context(decision)
            if stored is not None:
                yield line, stored.context


def _pages(table: JournalTable) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield up to :data:`PAGE` rows at a time, as partition, row indices and positions."""
    for partition in np.unique(table.partition).tolist():
        lines = np.flatnonzero(table.partition == partition)
        for start in range(0, len(lines), PAGE):
            page = lines[start : start + PAGE]
            yield partition, page.tolist(), table.position[page].tolist()


def _decisions_at(journal: Journal, partition: int, positions: list[int]) -> dict[int, Decision]:
    """Return the decisions at ``positions``, which must be in ascending order."""
    decisions: dict[int, Decision] = {}
    start = 0
    for n, position in enumerate(positions):
        # Reading the records between two nearby positions is faster than a second lookup.
        if n + 1 < len(positions) and positions[n + 1] - position <= NEAR:
            continue
        first = positions[start]
        for record in journal.read(partition, first - 1, position - first + 1):
            if isinstance(record.event, Decision) and record.position <= position:
                decisions[record.position] = record.event
        start = n + 1
    return decisions


def read_offers(
    journal: Journal, table: JournalTable, features: Features | None
) -> tuple[Mask, Offers]:
    """Return a mask of the decisions whose request is usable, and the actions offered in them.

    Args:
        journal: the journal of the decisions.
        table: the decisions.
        features: the features that encode contexts as rows, if any.

    Raises:
        NotEvaluable: no usable request is stored, or the propensities of the actions are unknown.
    """
    usable = np.zeros(len(table), dtype=np.bool_)
    by_line: dict[int, tuple[Row, list[float], list[int | str], float]] = {}
    places = np.zeros(len(table), dtype=np.int64)
    encoder = RowEncoder(features)
    outdated, silent = 0, set[int]()  # silent: decisions with unknown propensities
    for line, stored in read_requests(journal, table):
        request = _with_records(stored, features)
        if request is None:
            outdated += 1
            continue
        rows = _rows(request, encoder)
        if rows is None:
            continue
        names = request.actions or list(range(len(rows)))
        place = request.place(int(table.index[line]), table.actions[table.action[line]])
        propensity = float(table.propensity[line])
        if request.propensities is None and propensity < 1.0:
            silent.add(line)
        shares = _shares(request, place, propensity, len(rows))
        by_line[line] = rows, shares, names, request.share
        places[line] = place
        usable[line] = True
    if not by_line and outdated:
        message = f"none of the {len(table):,} decisions stores the records of its actions"
        raise NotEvaluable(
            f"{message}, and {outdated:,} of them used a different catalogue than these features:"
            " pass features with the catalogue used at the time, or --catalogue"
        )
    if not by_line:
        message = f"none of the {len(table):,} decisions has a stored request"
        if unreadable := encoder.counts.total() - encoder.counts["encoded"]:
            message = f"these features cannot encode the requests of {unreadable:,} decisions"
        raise NotEvaluable(
            f"{message}: create the bandit with keep_requests='auto', and evaluate the decisions it"
            " makes from then on"
        )
    by_policy = usable & (table.source == SOURCES.index("policy"))
    if by_policy.any() and silent.issuperset(np.flatnonzero(by_policy).tolist()):
        message = "the logging policy did not record the probability of every action"
        raise NotEvaluable(
            f"{message}: give it a floor, such as 0.02, and evaluate the decisions it makes"
            " from then on"
        )
    lines = [by_line[line] for line in np.flatnonzero(usable).tolist()]
    counts = np.array([len(rows) for rows, _, _, _ in lines], dtype=np.int64)
    starts = np.cumsum(counts) - counts
    return usable, Offers(
        rows=np.concatenate([rows for rows, _, _, _ in lines]),
        starts=starts,
        chosen=starts + places[usable],
        propensity=np.concatenate([np.array(shares) for _, shares, _, _ in lines]),
        actions=np.array([name for _, _, names, _ in lines for name in names], dtype=object),
        kept=np.array([share for _, _, _, share in lines]),
        blocks=getattr(features, "blocks", None),
        outdated=outdated,
    )


def _with_records(request: KeptRequest, features: Features | None) -> KeptRequest | None:
    """Fill in a request's records from the catalogue; return None if the catalogue has changed."""
    if request.digests is None:
        return request
    catalogue = features.encoded if isinstance(features, Shared) else None
    actions = request.actions or []
    if catalogue is None or not catalogue.matches(actions, request.digests):
        return None
    own_records = request.records or [None] * len(actions)
    records = [catalogue.record(*pair) for pair in zip(actions, own_records, strict=True)]
    return msgspec.structs.replace(request, records=records)


def _rows(request: KeptRequest, encoder: RowEncoder) -> Row | None:
    """Return the rows of a request; None if the features cannot encode it."""
    if request.rows is not None:
        return request.rows
    if encoder.features is None:
        message = "the journal stores contexts, but there are no features to encode them"
        raise NotEvaluable(f"{message}: pass the features of the bandit")
    actions = request.actions or []
    return encoder.rows(
        request.context, dict(zip(actions, request.records or [None] * len(actions), strict=True))
    )


def _shares(request: KeptRequest, index: int, propensity: float, count: int) -> list[float]:
    if request.propensities is not None:
        return request.propensities
    if propensity < 1.0:
        return [propensity if place == index else math.nan for place in range(count)]
    return [float(place == index) for place in range(count)]
