"""Clients of the service: the verbs of a bandit, over HTTP.

``client`` has a blocking and an asynchronous one, which share what a verb sends and what its answer
means (``verbs``, ``requests``); ``transport`` sends, waits and tries again.
"""

from belated.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
