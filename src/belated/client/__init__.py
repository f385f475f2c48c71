"""HTTP clients of the decision service, with the same methods as a bandit.

:class:`AsyncClient` is for asyncio, and :class:`Client` is its blocking counterpart. ``requests``
builds request bodies; ``transport`` sends requests and retries them.
"""

from belated.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
