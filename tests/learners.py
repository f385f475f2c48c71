"""Create the learners of a definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from belated.journals import Store
from belated.service import Definition
from belated.service.learning.learners import learner_of
from belated.service.learning.learning_service import LearningService
from belated.service.learning.shared_learner import SharedLearner


def learning_service(definition: Definition, store: Store, **settings: Any) -> LearningService:
    """Return a learner of all partitions of a bandit."""
    learner = learner_of(replace(definition, learners="one"), store, **settings)
    assert isinstance(learner, LearningService)
    return learner


def shared_learner(definition: Definition, store: Store, **settings: Any) -> SharedLearner:
    """Return one of several learners that share a bandit."""
    learner = learner_of(replace(definition, learners="many"), store, **settings)
    assert isinstance(learner, SharedLearner)
    return learner
