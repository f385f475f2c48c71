"""The decision service: HTTP in front, a store behind.

*Deciders* (:class:`Service`) choose with the latest published model, and respond once decisions and
rewards are durable. One *learner* (:class:`LearningService`) at a time folds the journal and
publishes models. A process can be both.

* ``serving``: the bandits of a decider process.
* ``learning``: learners and leases.
* ``access``: API keys, reward tokens and CORS.
* ``http``: routes, problems and status codes, which no other package knows.
* ``operating``: configuration, logs, metrics, doctor.
* ``runtime``: time and threads; the fault simulator has its own.
"""

import logging

from belated.service.http.app import Service
from belated.service.serving.definition import Definition

__all__ = ["Definition", "Service"]

# Only processes of the service configure logging (`operating.logs`).
logging.getLogger("belated.service").addHandler(logging.NullHandler())
