"""Ports for servers of tests, which may be stopped and started again on the same one."""

from __future__ import annotations

import random
import socket

#: Below those that systems give to outgoing connections (32768 and up on Linux, 49152 elsewhere):
#: one of these could take the port while its server is down or has yet to start.
_FIRST, _LAST = 10_000, 32_767
_given: set[int] = set()
#: Not the generator that tests seed: it would give the same ports to all processes.
_random = random.SystemRandom()


def free_port() -> int:
    """One that nobody listens on, and that was not given before."""
    while True:
        port = _random.randint(_FIRST, _LAST)
        with socket.socket() as found:
            try:
                found.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port
