"""HTTP clients of the decision service, with the same methods as a bandit.

:class:`AsyncClient` is for asyncio; :class:`Client` runs the same coroutines blocking. ``requests``
builds request bodies, and ``transport`` sends them and retries.
"""

from belated.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
