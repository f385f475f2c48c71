"""Clients of the service: the verbs of a bandit, over HTTP.

``client`` has an asynchronous one, and a blocking one with the same coroutines; ``requests`` makes
what a verb sends; ``transport`` sends, waits and tries again.
"""

from belated.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
