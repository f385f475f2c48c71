"""A bandit in your program and one behind a service are called alike."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from belated import Bandit
from belated.client import AsyncClient, Client

VERBS = [
    "decide",
    "decide_many",
    "observe",
    "observe_many",
    "observe_subjects",
    "activate",
    "void",
    "pause",
    "resume",
    "retire",
    "entry",
]
#: Parameters of a client that a bandit cannot have, with the reason.
ONLY_CLIENTS = {
    ("decide", "fallback"): "a bandit in the program does not need a service to be reached",
    ("decide_many", "fallback"): "a bandit in the program does not need a service to be reached",
    ("observe", "token"): "it stands for an API key, and a program needs none for its own bandit",
}


def parameters(owner: type, verb: str) -> dict[str, tuple[Any, Any]]:
    """The kind and the default of each parameter, in their order."""
    found = inspect.signature(getattr(owner, verb)).parameters
    return {
        name: (one.kind, one.default)
        for name, one in found.items()
        if owner is Bandit or (verb, name) not in ONLY_CLIENTS
    }


@pytest.mark.parametrize("verb", VERBS)
def test_clients_take_what_a_bandit_takes(verb: str) -> None:
    """The same names, in the same order, with the same defaults."""
    expected = parameters(Bandit, verb)
    for client in (Client, AsyncClient):
        found = parameters(client, verb)
        assert list(found.items()) == list(expected.items())
