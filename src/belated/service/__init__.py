"""The decision service: HTTP in front, a store behind.

*Deciders* (:class:`Service`) hold the newest model, choose, and answer once every decision and
reward is durable. One *learner* (:class:`LearningService`) at a time folds the journal and
publishes models. One process can be both.

* ``serving``: one bandit at one decider process.
* ``learning``: learners, and the lease of the one that leads.
* ``access``: API keys and reward tokens.
* ``http``: routes, problems and status codes, which no other package knows.
* ``operating``: configuration, logs, metrics, doctor.
* ``runtime``: time and threads, real ones; the fault simulator has others.
"""

import logging

from belated.service.http.app import Service
from belated.service.serving.definition import Definition

__all__ = ["Definition", "Service"]

# The process configures where its log goes (`operating.logs`); as a library it logs nothing.
logging.getLogger("belated.service").addHandler(logging.NullHandler())
