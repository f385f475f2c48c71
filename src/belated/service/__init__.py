"""The decision service: HTTP in front, a journal in PostgreSQL behind.

*Deciders* (:func:`create_app`) hold the latest model, choose, and have every decision and reward
kept before they answer. One *learner* (:class:`LearningService`) at a time folds the journal and
publishes models. One process can be both. :class:`Client` has the verbs of a bandit, over HTTP.
"""

from belated.service.app import create_app
from belated.service.client import Client
from belated.service.desk import Definition
from belated.service.learning import LearningService

__all__ = ["Client", "Definition", "LearningService", "create_app"]
