"""The log in a journal: what :class:`~belated.Bandit` and the commands ask."""

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
    """The decisions of a journal; each call reads it anew.

    Attributes:
        journal: to read.
        family: of the rewards.
        rewards: what a missing reward means.
        retention: how long a reward counts, in microseconds.
        features: that make rows, if any do.
        until: records stamped later are not there.
        step: is told how many records were read, for a progress bar.
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
        """As the journal says what its bandit is.

        Raises:
            InvalidInput: it does not say it, or names a family or features of your own.
        """
        configured = journal.configured()
        if configured is None:
            message = f"the journal of {journal.bandit!r} does not say what its bandit is"
            raise InvalidInput(f"{message}: open it with Bandit(...), and evaluate that", None)
        said = configured.settings
        rewards, retention = semantics_of(said)
        features = as_features(said["features"]) if "features" in said else None
        family = family_in(said["policy"])
        return cls(journal, family, rewards, retention, features, **settings)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the bandit."""
        return self.journal.bandit

    @property
    def actions(self) -> Sequence[int | str] | None:  # type: ignore[override]
        """The actions that the features name, if they do."""
        return getattr(self.features, "actions", None)

    @property
    def settings(self) -> Mapping[str, str]:
        """What the bandit is, as the journal says it."""
        configured = self.journal.configured()
        return {} if configured is None else configured.settings

    @property
    def action_changes(self) -> dict[str, ActionChanged]:
        """The last change of each action, also of records that were trimmed."""
        return self.journal.actions()

    def table(self, watch: Callable[[Record, str], None] | None = None) -> JournalTable:
        """Return one line a decision; ``watch`` is told every record, and what it meant."""
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
        """Return which decisions have a request, and what they were chosen from."""
        return read_offers(self.journal, table, self.features)

    def contexts(self, table: JournalTable) -> Iterator[tuple[int, Any]]:
        """Yield the decisions whose context is stored, each with the context."""
        return read_contexts(self.journal, table)
