"""Compare the ledger of a learner with that of the journal it has read."""

from __future__ import annotations

import numpy as np

from belated.exceptions import HistoryUndone
from belated.fold.fold import Fold
from belated.journals import Store
from belated.service import Definition
from belated.service.http.app import Service
from belated.service.learning.learning_service import LearningService


def folds_of(app: Service) -> dict[str, Fold]:
    """Return the folds of a running service's learners."""
    learners = app._learners.running.items()
    return {
        name: learner.fold
        for name, learner in learners
        if isinstance(learner, LearningService) and learner.fold is not None
    }


def check_ledger(live: Fold, definition: Definition, store: Store) -> None:
    """Check that a ledger is finite and equals a fold of the journal from its start."""
    with store.journal(definition.name) as journal:
        try:
            assert live.catch_up(journal) < 100  # what was told or settled at the very end
        except HistoryUndone:  # a subject was erased there
            live.clear()
            live.begin(journal)
            live.catch_up(journal)
        reference = Fold(
            definition.policy,
            definition.rewards,
            partitions=journal.partitions,
            retention=definition.retention,
        )
        reference.begin(journal)
        reference.catch_up(journal)
    assert live.digest == reference.digest
    assert live.counters == reference.counters
    for fold in (live, reference):
        for numbers in (fold.model.theta, fold.model.observed, fold.model.decided):
            assert np.isfinite(numbers).all()
