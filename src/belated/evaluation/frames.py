"""Logs in data frames: decisions of any system with their outcomes, one row per decision."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from belated.core.ids import check_id
from belated.core.inputs import Matrix, Row, Vector
from belated.core.rewards import Rewards, check_default, check_semantics
from belated.core.times import Moment, as_microseconds
from belated.decider.batches import named
from belated.evaluation.arrivals import arrival_weights
from belated.evaluation.columns import NEVER, column_of, names_of, numbers, times, values
from belated.evaluation.log import DecisionLog
from belated.evaluation.logs import LoggedDecision, family_of, import_log
from belated.evaluation.requests import Offers
from belated.evaluation.sources import JournalTable
from belated.evaluation.table import DecisionTable, Mask, Times
from belated.evaluation.targets import NEAR
from belated.evaluation.values import cross_fitted
from belated.exceptions import InvalidInput
from belated.features import Features, PerArm
from belated.fold.rules import State
from belated.journals import Journal, MemoryJournal, open_store
from belated.journals.addresses import split_address
from belated.model.families import Family

#: Maximum number of rows to which default features are fitted.
SAMPLE = 20_000


@dataclass(frozen=True, eq=False, repr=False)
class Log(DecisionLog):
    """The decisions of any system with their outcomes; create one with :meth:`from_frame`.

    A :class:`~belated.Bandit` has the same methods for its own decisions.

    Attributes:
        name: name of the bandit when the log is written to a journal.
        family: family of the rewards.
        rewards: what a missing reward means.
        features: the features that encode contexts as rows.
        actions: the offered actions, the same in every decision.
        decisions: the decisions, one row each.
        raw_contexts: the context of each decision, not encoded.
        propensities: probability of each action in each decision; NaN if unknown.
        line_numbers: the row of the data frame that each decision comes from.
    """

    name: str
    family: Family
    rewards: Rewards
    features: Features
    actions: Sequence[int | str]
    decisions: JournalTable
    raw_contexts: list[Any]
    propensities: Matrix
    line_numbers: Times
    retention: int | None = None
    until: int | None = None

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        rewards: Rewards | None = None,
        context: str | Sequence[str] = (),
        action: str = "action",
        propensity: str = "propensity",
        reward: str = "reward",
        decided_at: str = "decided_at",
        rewarded_at: str = "rewarded_at",
        id: str | None = None,
        predicted: str | None = None,
        actions: Sequence[int | str] | None = None,
        features: Features | None = None,
        family: Family | None = None,
        as_of: Moment | None = None,
        name: str = "log",
    ) -> Log:
        """Create a log from a data frame with one row per decision.

        Times are timezone-aware datetimes, or microseconds since 1970.

        Args:
            frame: a pandas, polars or Arrow data frame, or a mapping of columns.
            rewards: what a missing reward means.
            context: columns of the context, known before choosing; or one column that contains the
                context as a mapping or a list of numbers.
            action: column of the chosen actions.
            propensity: column of the probability with which each action was chosen; or a column of
                lists with the probability of every action, in the order of ``actions``.
            reward: column of rewards; null if a reward has not arrived.
            decided_at: column of the times at which decisions were made.
            rewarded_at: column of the times at which rewards arrived; null if a reward has not
                arrived. The column may be absent if no reward is null; rewards then count as known
                immediately.
            id: column of decision ids; by default, ids are derived from row numbers.
            predicted: column of the mean rewards that were predicted when choosing.
            actions: the offered actions; by default, the actions that the features name, or every
                action that was chosen.
            features: features that encode contexts as rows, for the reward model and for a bandit
                that starts from the log. The default is :class:`~belated.PerArm`, fitted to the
                contexts.
            family: family of the rewards. The default is :class:`~belated.Bernoulli` if all are
                from 0 to 1, otherwise :class:`~belated.Gaussian`.
            as_of: ignore decisions and rewards after this time; by default, all are used.
            name: name of the bandit when the log is written to a journal.

        >>> from belated import Explicit
        >>> frame = {
        ...     "action": ["mail", "call"],
        ...     "propensity": [0.5, 0.5],
        ...     "reward": [1.0, None],
        ...     "decided_at": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        ...     "rewarded_at": ["2026-01-03T00:00:00Z", None],
        ... }
        >>> Log.from_frame(frame, rewards=Explicit())
        <Log 'log': 2 decisions, 1 rewarded>
        """
        check_semantics(rewards)
        assert rewards is not None
        check_id(name, "name")

        def read(argument: str, column: str) -> Any:
            return column_of(frame, column, argument)

        decided = times(read("decided_at", decided_at), decided_at)
        value = numbers(read("reward", reward), reward)
        _refuse(decided == NEVER, decided_at, "is null: remove the row, or set its time")
        if not len(decided):
            raise InvalidInput("the data frame is empty: pass one row per decision", frame)
        as_microseconds(int(decided.min()), decided_at)  # rejects other units, such as seconds
        arrived = _times_of_rewards(frame, rewarded_at, decided, value)
        now = int(max(decided.max(), arrived.max()))
        now = now if as_of is None else as_microseconds(as_of, "as_of")
        if now < decided.min():
            raise InvalidInput("`as_of` is before the first decision: pass a later time", as_of)
        chosen = values(read("action", action))
        if actions is None:
            occurring = sorted({name for name in chosen if name is not None}, key=str)
            actions = getattr(features, "actions", None) or occurring
        place = {name: n for n, name in enumerate(actions)}
        index = np.array([place.get(name, -1) for name in chosen], dtype=np.int32)
        _refuse(index < 0, action, f"is not one of the actions {list(actions)!r}")
        propensities = _propensities(read("propensity", propensity), propensity, index, len(place))
        family = family or family_of(value)
        check_default(rewards, family.support)
        low, high = rewards.range(family.support)
        _refuse((value < low) | (value > high), reward, f"is outside {low:g} to {high:g}")
        lines = np.argsort(decided, kind="stable")
        lines = lines[decided[lines] <= now]
        index, propensities = index[lines], propensities[lines]
        ids = [f"line-{n}" for n in range(len(decided))]
        if id is not None:
            ids = [check_id(text) for text in values(read("id", id))]
            if len({*ids}) < len(ids):
                repeated = next(text for text, count in Counter(ids).items() if count > 1)
                message = f"{id!r} contains {repeated!r} more than once: pass one row per decision"
                raise InvalidInput(message, repeated)
        mean = None
        if predicted is not None:
            mean = numbers(read("predicted", predicted), predicted)[lines]
        table = DecisionTable.of(
            made=decided[lines],
            rewarded=np.where(arrived > now, NEVER, arrived)[lines],
            value=value[lines],
            as_of=now,
            rewards=rewards,
            action=np.array(chosen, dtype=object)[lines],
            propensity=propensities[np.arange(len(lines)), index],
            mean=mean,
        )
        contexts = _contexts(frame, context, len(decided))
        raw_contexts = [contexts[line] for line in lines.tolist()]
        if features is None:
            features = _features_for(raw_contexts, actions)
        decisions = _as_in_a_journal(table, np.array(ids, dtype=object)[lines], index)
        return cls(
            name, family, rewards, features, actions, decisions, raw_contexts, propensities, lines
        )

    def table(self, watch: object = None) -> JournalTable:
        """Return the table with one row per decision."""
        return self.decisions

    def lines(self, table: JournalTable) -> NDArray[np.int64]:
        """Return the row of the data frame that each decision comes from."""
        return self.line_numbers

    def offers(self, table: JournalTable) -> tuple[Mask, Offers]:
        """Return the actions offered in the decisions; the mask is true for all of them."""
        lines, count = table.position - 1, len(self.actions)
        starts = np.arange(len(lines)) * count
        names = np.empty(count, dtype=object)
        names[:] = self.actions
        return np.ones(len(lines), dtype=np.bool_), Offers(
            rows=self._rows(lines.tolist()),
            starts=starts,
            chosen=starts + table.index,
            propensity=self.propensities[lines].reshape(-1),
            actions=np.tile(names, len(lines)),
            kept=np.ones(len(lines)),
            blocks=getattr(self.features, "blocks", None),
        )

    def contexts(self, table: JournalTable) -> Iterator[tuple[int, Any]]:
        """Yield the row index and the context of each decision."""
        return enumerate(self.raw_contexts[line] for line in (table.position - 1).tolist())

    def chosen_rows(self, table: JournalTable) -> Row:
        """Return the row of the chosen action for each decision."""
        _, offers = self.offers(table)
        return offers.rows[offers.chosen]

    def to_journal(self, journal: Journal | str) -> None:
        """Write the log to a new journal, with the timestamps of its decisions and rewards.

        A bandit that opens the journal learns from the whole log.

        Args:
            journal: an empty journal, or the address of a bandit that does not exist yet.

        Raises:
            InvalidInput: the bandit already exists or, with SQLite, the file does.
        """
        if isinstance(journal, str):
            place, bandit = split_address(journal)
            with open_store(place).new_journal(bandit, partitions=1) as new:
                self.to_journal(new)
            return
        import_log(
            journal,
            self._decisions(),
            self.features,
            family=self.family,
            rewards=self.rewards,
            as_of=self.decisions.as_of,
        )

    @cached_property
    def journal(self) -> Journal:  # type: ignore[override]
        """The log as an in-memory journal."""
        journal = MemoryJournal(self.name, clock=lambda: self.decisions.as_of)
        self.to_journal(journal)
        return journal

    def predicted(self, table: JournalTable) -> JournalTable:
        """Return the table with predicted means.

        If a missing reward counts as a value and there are no predictions, a model is fitted.
        """
        if table.mean.any() or not table.conversions:
            return table
        _, offers = self.offers(table)
        omega = arrival_weights(table.delay, table.age)
        outcome = np.where(table.arrived, omega * table.value, 0.0)
        means = cross_fitted(offers, outcome, np.ones(len(table)), self.family)
        return replace(table, mean=np.maximum(means[offers.chosen], 1e-9))

    def _rows(self, lines: list[int]) -> Row:
        contexts, features = [self.raw_contexts[line] for line in lines], self.features
        if isinstance(features, PerArm):
            # On failure, the contexts are encoded one at a time below, to name the invalid row.
            with suppress(InvalidInput):
                return features.tables(contexts, self.actions)
        tables = []
        for line, context in zip(lines, contexts, strict=True):
            with named(f"row {self.line_numbers[line]} of the data frame"):
                tables.append(features.rows(context, self.actions))
        return np.concatenate(tables)

    def _decisions(self) -> Iterator[LoggedDecision]:
        table = self.decisions
        means = table.mean
        if not means.any():  # a pending decision is weighted by its mean, so 0 would not count
            observed = np.where(table.arrived, table.value, 0.0)
            count = len(table) if table.conversions else table.arrived.sum()
            means = np.full(len(table), observed.sum() / max(count, 1))
        columns = (
            table.ids, table.made, table.index, table.value, table.rewarded, means,
            self.propensities,
        )  # fmt: skip
        lines = zip(*(column.tolist() for column in columns), self.raw_contexts, strict=True)
        for id, decided, index, value, arrived, mean, shares, context in lines:
            yield LoggedDecision(
                id=id,
                at=decided,
                actions=self.actions,
                index=index,
                propensities=shares,
                reward=None if arrived == NEVER else value,
                rewarded=None if arrived == NEVER else arrived,
                context=context,
                mean=mean,
            )


def _refuse(wrong: Mask, column: str, why: str) -> None:
    """Raise InvalidInput for the first invalid row, if any."""
    if wrong.any():
        line, count = int(wrong.argmax()), int(wrong.sum())
        message = f"row {line} of the data frame: {column!r} {why}"
        raise InvalidInput(f"{message} ({count:,} of {len(wrong):,} rows)", line)


def _times_of_rewards(frame: Any, name: str, made: Times, value: Vector) -> Times:
    missing = np.isnan(value)
    if name not in names_of(frame) and not missing.any():
        return made
    arrived = times(column_of(frame, name, "rewarded_at"), name)
    _refuse(missing & (arrived != NEVER), name, "is set, but the reward is null")
    _refuse(~missing & (arrived == NEVER), name, "is null, but there is a reward: set its time")
    _refuse(~missing & (arrived < made), name, "is before the decision")
    return arrived


def _propensities(given: Any, name: str, index: NDArray[np.int32], count: int) -> Matrix:
    """Return the probability of each action in each row; NaN if unknown."""
    lines = np.arange(len(index))
    first = values(given[:1])
    if first and isinstance(first[0], list | tuple | np.ndarray):
        listed = values(given)
        _refuse(
            np.array([shares is None or len(shares) != count for shares in listed]), name,
            f"is not a list of {count} probabilities, one for each action",
        )  # fmt: skip
        propensities = np.array([list(shares) for shares in listed], dtype=np.float64)
        wrong = (propensities < 0.0).any(axis=1) | ~(np.abs(propensities.sum(axis=1) - 1.0) <= NEAR)
        _refuse(wrong, name, "does not contain probabilities that add up to 1")
    else:
        propensities = np.full((len(index), count), np.nan)
        propensities[lines, index] = numbers(given, name)
    chosen = propensities[lines, index]
    _refuse(~((chosen > 0.0) & (chosen <= 1.0)), name, "must be above 0 and at most 1")
    return propensities


def _contexts(frame: Any, context: str | Sequence[str], count: int) -> list[Any]:
    """Return the context of each row."""
    if isinstance(context, str):
        listed = values(column_of(frame, context, "context"))
        first = next((entry for entry in listed if entry is not None), None)
        if isinstance(first, Mapping | list | tuple | np.ndarray):
            return listed
        context = [context]
    if not context:
        return [None] * count
    columns = [values(column_of(frame, name, "context")) for name in context]
    return [dict(zip(context, line, strict=True)) for line in zip(*columns, strict=True)]


def _features_for(raw_contexts: list[Any], actions: Sequence[int | str]) -> Features:
    """Return features with separate coefficients for each action, fitted to a sample."""
    sample = raw_contexts[:: max(1, len(raw_contexts) // SAMPLE)]
    first = next((context for context in sample if context is not None), None)
    if first is None:
        return PerArm(actions)
    if isinstance(first, Mapping):
        return PerArm(actions, context=list(first)).fit(sample)
    return PerArm(actions, context=len(first))


def _as_in_a_journal(
    table: DecisionTable, ids: NDArray[Any], index: NDArray[np.int32]
) -> JournalTable:
    """Return the decisions in the form that a journal with one partition would return."""
    count, rewards, arrived = len(table), table.rewards, table.arrived
    window = math.inf if rewards.window_us is None else rewards.window_us
    silent = State.DEFAULTED if rewards.on_timeout == "defaulted" else State.CENSORED
    state = np.where(~arrived & (table.age >= window), silent, table.state).astype(np.uint8)
    settled = {
        "state": state,
        "value": np.where(state == State.DEFAULTED, rewards.default, table.value),
    }
    return JournalTable(
        **vars(table) | settled,
        ids=ids,
        recorded=table.made,
        at=table.made,
        late=arrived & (table.delay > window),
        conflict=np.zeros(count, dtype=np.bool_),
        index=index,
        model=np.zeros(count, dtype=np.int64),
        partition=np.zeros(count, dtype=np.int32),
        position=np.arange(1, count + 1),
    )
