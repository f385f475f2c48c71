"""How many connections there may be, and under which names the service is asked."""

from __future__ import annotations

from dataclasses import dataclass

#: Connections at the same time, in all and from one address.
MAX_CONNECTIONS, MAX_PER_ADDRESS = 4096, 1024


@dataclass(frozen=True)
class Limits:
    """What an operator may set.

    Attributes:
        connections: how many there may be at a time.
        per_address: how many of them from one address.
        hosts: the names that this server is asked by, in lower case and without a port; none for
            any name.
    """

    connections: int = MAX_CONNECTIONS
    per_address: int = MAX_PER_ADDRESS
    hosts: frozenset[str] = frozenset()
