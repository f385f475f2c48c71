"""The decision service: bandits over HTTP, with their journals in a store.

*Deciders* (:class:`Service`) choose with the latest published model, and respond once decisions and
rewards are durable. One *learner* (:class:`LearningService`) at a time folds the journal and
publishes models. A process can be both a decider and a learner.

* ``serving``: the bandits that a decider process serves.
* ``learning``: learners and leases.
* ``access``: API keys, reward tokens and CORS.
* ``http``: everything that depends on HTTP: routes, problems and status codes.
* ``operating``: configuration, logging, metrics and ``belated doctor``.
* ``runtime``: clocks and threads, which the fault simulator replaces.
"""

import logging
from typing import TYPE_CHECKING

from belated.service.http.app import Service
from belated.service.serving.definition import Definition

__all__ = ["Definition", "Service", "asgi_app"]

# Logging is configured only in the processes of the service (`operating.logs`).
logging.getLogger("belated.service").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    from belated.service.http.asgi import asgi_app
else:

    def __getattr__(name):  # imported lazily, because it requires an extra
        if name == "asgi_app":
            from belated.service.http.asgi import asgi_app

            return asgi_app
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
