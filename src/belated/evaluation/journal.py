"""The decision log of a journal, used by :class:`~belated.Bandit` and the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from belated.core.events import ActionChanged, Record
from belated.core.rewards import Rewards
from belated.evaluation.log import DecisionLog
from belated.evaluation.requests import Offers, read_contexts, read_offers
from belated.evaluation.sources import JournalTable, read_journal
from belated.evaluation.table import Mask
from belated.exceptions import InvalidInput
from belated.expressions import as_features, family_in
from belated.features import Features
from belated.journals import Journal
from belated.journals.identity import semantics_of
from belated.model.families import Family


@dataclass(frozen=True, eq=False, repr=False)
class JournalLog(DecisionLog):
    """The decisions of a journal, which is read again on each call.

    Attributes:
        journal: the journal to read.
        family: family of the rewards.
        rewards: what a missing reward means.
        retention: how long a decision accepts rewards, in microseconds.
        features: the features that encode contexts as rows, if any.
        until: ignore records with a later timestamp.
        step: called with the number of records read, for a progress bar.
    """

    journal: Journal
    family: Family
    rewards: Rewards
    retention: int | None = None
    features: Features | None = None
    until: int | None = None
    step: Callable[[int], None] = lambda count: None

    @classmethod
    def of_journal(cls, journal: Journal, **settings: Any) -> JournalLog:
        """Return the log of a journal, using the settings stored in the journal.

        Raises:
            InvalidInput: the journal stores no settings, or names a custom family or features.
        """
        configured = journal.configured()
        if configured is None:
            message = f"the journal of {journal.bandit!r} does not store the bandit's settings"
            raise InvalidInput(
                f"{message}: open it with Bandit(...), and evaluate the bandit", None
            )
        stored = configured.settings
        rewards, retention = semantics_of(stored)
        features = as_features(stored["features"]) if "features" in stored else None
        family = family_in(stored["policy"])
        return cls(journal, family, rewards, retention, features, **settings)

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the bandit."""
        return self.journal.bandit

    @property
    def actions(self) -> Sequence[int | str] | None:  # type: ignore[override]
        """Names of the actions; None if the features do not name them."""
        return getattr(self.features, "actions", None)

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the bandit that are stored in the journal."""
        configured = self.journal.configured()
        return {} if configured is None else configured.settings

    @property
    def action_changes(self) -> dict[str, ActionChanged]:
        """The last change of each action, including changes in trimmed records."""
        return self.journal.actions()

    def table(self, watch: Callable[[Record, str], None] | None = None) -> JournalTable:
        """Return a table with one row per decision; call ``watch`` with each record and status."""
        return read_journal(
            self.journal,
            rewards=self.rewards,
            retention=self.retention,
            support=self.family.support,
            until=self.until,
            step=self.step,
            watch=watch,
        )

    def offers(self, table: JournalTable) -> tuple[Mask, Offers]:
        """Return a mask of the decisions with a usable request, and their offered actions."""
        return read_offers(self.journal, table, self.features)

    def contexts(self, table: JournalTable) -> Iterator[tuple[int, Any]]:
        """Yield the row index and the context of each decision whose context is stored."""
        return read_contexts(self.journal, table)
