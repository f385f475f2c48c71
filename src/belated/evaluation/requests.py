"""What decisions of a journal were chosen from, as far as it was kept."""

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

#: Requests read at a time; and positions so near to each other are read at once.
PAGE, NEAR = 1_000, 100
#: Propensities over both groups are known if they are so near to those that were recorded.
NEAR_SHARE = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class Offers(Shortened):
    """The rows on offer of all decisions, one decision after the other.

    Attributes:
        rows: of all actions, float32.
        starts: where the rows of each decision begin.
        chosen: which of all rows each decision chose.
        propensity: probability of each row at the choice; NaN if it is not known.
        actions: name of the action of each row.
        kept: probability with which the request of each decision was kept.
        blocks: of coefficients, if a row is of one of them.
        outdated: requests that were left out, because the catalogue of their actions has changed.
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
        """Number of actions of each decision."""
        found: NDArray[np.int64] = np.diff(self.starts, append=len(self.rows))
        return found

    @property
    def design(self) -> Matrix:
        """The rows over all coefficients."""
        return unblocked(self.rows, self.blocks)

    def spans(self) -> Iterator[tuple[int, int]]:
        """The first row of each decision, and the one behind its last."""
        return zip(self.starts.tolist(), (self.starts + self.counts).tolist(), strict=True)

    def by_block(self) -> Iterator[tuple[Times, Matrix]]:
        """Each block of coefficients: the places of its rows, in order, and their numbers."""
        if self.blocks is None:
            yield np.arange(len(self.rows)), self.rows.astype(np.float64)
            return
        block = self.rows[:, 0]
        for one in np.unique(block):
            places = np.flatnonzero(block == one)
            yield places, self.rows[places, 1:].astype(np.float64)

    def sums(self, values: Vector) -> Vector:
        """The sum of a number of each row, over the rows of each decision."""
        if not len(self.starts):
            return np.zeros(0)
        return np.add.reduceat(values, self.starts)

    def over_groups(self, table: DecisionTable) -> Self:
        """Return the offers with the propensity of each row over both groups of a holdout.

        Decisions of both groups then count alike: the balance heuristic. Rows whose propensity
        over both groups is unknown have NaN: those that a decision of the holdout did not choose.

        Args:
            table: the decisions.
        """
        held, grouped = table.in_group(HELD), table.in_group(BANDIT)
        chosen, baseline = self.propensity[self.chosen], self._shares_of(table.baseline)
        apart = np.abs(baseline[self.chosen] - chosen)[grouped].sum()
        moved = np.abs(table.overall - chosen)[grouped].sum()
        share = moved / apart if apart > 0.0 else 0.0
        mixed = share * baseline + (1.0 - share) * self.propensity
        propensity = np.where(np.repeat(grouped, self.counts), mixed, self.propensity)
        unknown = held | ~(np.abs(propensity[self.chosen] - table.overall) <= NEAR_SHARE)
        propensity[np.repeat(unknown, self.counts)] = np.nan
        propensity[self.chosen] = table.overall
        return replace(self, propensity=propensity)

    def _shares_of(self, baseline: str | None) -> Vector:
        """Return the probability of each row under a baseline; NaN if that is not known."""
        if baseline is None:
            return np.full(len(self.rows), np.nan)
        if baseline == UNIFORM:
            return np.repeat(1.0 / self.counts, self.counts)
        named = np.array([str(name) == baseline for name in self.actions.tolist()], np.float64)
        first = np.zeros(len(self.rows))
        first[self.starts] = 1.0
        return np.where(np.repeat(self.sums(named) > 0.0, self.counts), named, first)

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
            outdated=self.outdated,
        )


def read_requests(journal: Journal, table: JournalTable) -> Iterator[tuple[int, KeptRequest]]:
    """Yield the lines of a table whose request was kept, each with the request; by partition."""
    for partition, lines, positions in _pages(table):
        kept = journal.requests(partition, positions)
        decisions = _decisions_at(journal, partition, [at for at in positions if at in kept])
        for line, position in zip(lines, positions, strict=True):
            if position in kept:
                yield line, KeptRequest.read(kept[position], decisions.get(position))


def read_contexts(journal: Journal, table: JournalTable) -> Iterator[tuple[int, Any]]:
    """Yield the lines of a table whose context is stored, each with the context; by partition."""
    for partition, lines, positions in _pages(table):
        decisions = _decisions_at(journal, partition, positions)
        for line, position in zip(lines, positions, strict=True):
            decision = decisions.get(position)
            stored = None if decision is None else read_context(decision)
            if stored is not None:
                yield line, stored.context


def _pages(table: JournalTable) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield partitions, with some lines and their positions."""
    for partition in np.unique(table.partition).tolist():
        lines = np.flatnonzero(table.partition == partition)
        for start in range(0, len(lines), PAGE):
            some = lines[start : start + PAGE]
            yield partition, some.tolist(), table.position[some].tolist()


def _decisions_at(journal: Journal, partition: int, positions: list[int]) -> dict[int, Decision]:
    """Return the decisions at some positions, which are in order."""
    decisions: dict[int, Decision] = {}
    start = 0
    for n, position in enumerate(positions):
        # Records between two positions that are near are sooner read than searched.
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
    encoder = RowEncoder(features)
    outdated, silent = 0, set[int]()  # silent: the policy did not say all probabilities
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
        found[line] = rows, shares, names, request.share
        places[line] = place
        kept[line] = True
    if not found and outdated:
        message = f"of {len(table):,} decisions none has kept the records of its actions"
        raise NotEvaluable(
            f"{message}, and the catalogue of {outdated:,} is not that of the features: pass"
            " features with the catalogue of that time, or --catalogue"
        )
    if not found:
        message = f"of {len(table):,} decisions none has kept its request"
        if unreadable := encoder.counts.total() - encoder.counts["encoded"]:
            message = f"these features cannot encode what {unreadable:,} decisions were chosen from"
        raise NotEvaluable(
            f"{message}: make the bandit with keep_requests='auto', and evaluate what it decides"
            " from then on"
        )
    by_policy = kept & (table.source == SOURCES.index("policy"))
    if by_policy.any() and silent.issuperset(np.flatnonzero(by_policy).tolist()):
        message = "the policy that decided did not say the probability of every action"
        raise NotEvaluable(
            f"{message}: give it a floor, such as 0.02, and evaluate what it decides from then on"
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
        outdated=outdated,
    )


def _with_records(request: KeptRequest, features: Features | None) -> KeptRequest | None:
    """Return a request with the records of the catalogue; None if they have changed since."""
    if request.digests is None:
        return request
    catalogue = features.encoded if isinstance(features, Shared) else None
    actions = request.actions or []
    if catalogue is None or not catalogue.matches(actions, request.digests):
        return None
    given = request.records or [None] * len(actions)
    records = [catalogue.record(*pair) for pair in zip(actions, given, strict=True)]
    return msgspec.structs.replace(request, records=records)


def _rows(request: KeptRequest, encoder: RowEncoder) -> Row | None:
    """Return the rows of a request; None if the features cannot make them."""
    if request.rows is not None:
        return request.rows
    if encoder.features is None:
        message = "the journal has contexts, and nothing to make rows of them"
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
