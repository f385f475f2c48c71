"""Ports for test servers, which may be restarted on the same port."""

from __future__ import annotations

import random
import socket

#: Below the ports of outgoing connections (32768 and up on Linux, 49152 elsewhere), one of which
#: could otherwise take the port while its server is down.
_FIRST, _LAST = 10_000, 32_767
_given: set[int] = set()
#: Not the generator that tests seed, which would give all processes the same ports.
_random = random.SystemRandom()


def free_port() -> int:
    """Return a free port that this process has not returned before."""
    while True:
        port = _random.randint(_FIRST, _LAST)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
