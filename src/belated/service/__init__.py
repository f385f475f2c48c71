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
from typing import TYPE_CHECKING

from belated.service.http.app import Service
from belated.service.serving.definition import Definition

__all__ = ["Definition", "Service", "asgi_app"]

# Only processes of the service configure logging (`operating.logs`).
logging.getLogger("belated.service").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from belated.service.http.asgi import asgi_app
else:

    def __getattr__(name):  # it needs an extra, which other parts of the service do not
        if name == "asgi_app":
            from belated.service.http.asgi import asgi_app

            return asgi_app
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
