"""`belated keys` against a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from belated.cli.main import main
from belated.core.events import KeyChanged
from belated.journals import Store
from belated.journals.keys import LiveKey
from belated.wire.keys import hash_of, looks_whole

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def keys(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run `belated keys …`; return the exit code, and the output on stdout and stderr."""
    file = tmp_path / "belated.toml"
    text = f"""
        [store]
        address = "{address}"
        [bandits.offers]
        policy = "DelayedUCB(dim=2, family=Bernoulli())"
        rewards = "Explicit"
    """
    file.write_text(text, encoding="utf-8")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["keys", *arguments, "--config", str(file)])
        return code, *capsys.readouterr()

    return run


def test_a_key_from_its_making_to_its_end(keys: Say, store: Store) -> None:
    """Shown once, listed without its secret, replaced by a second one, revoked."""
    create = ("create", "cli shop", "--bandit", "offers", "--scope", "reward", "--scope", "decide")
    code, key, text = keys(*create, "--rate", "50")
    key = key.removesuffix("\n")
    id = key[4:12]
    assert code == 0
    assert looks_whole(key)
    assert f"created key {id} for cli shop: store it now" in text
    key_store = store.keys()
    (live_key,) = [entry for entry in key_store.live() if entry.id == id]
    assert live_key == LiveKey(
        id, "cli shop", ("offers",), ("decide", "reward"), 50.0, hash_of(key)
    )

    assert keys(*create)[0] == 0
    code, out, text = keys(*create)
    assert (code, out) == (2, "")
    assert "already has two keys" in text

    _, listing, _ = keys("list")
    (line,) = [line for line in listing.splitlines() if line.startswith(id)]
    assert line.split()[1:-1] == ["cli", "shop", "offers", "decide,reward", "50/s"]
    assert key[13:] not in listing
    code, text, _ = keys("revoke", id)
    assert (code, text) == (0, f"the key {id} is revoked: services reject it within two seconds\n")
    assert id not in keys("list")[1]
    assert id in keys("list", "--all")[1]
    assert id not in [entry.id for entry in key_store.live()]
    key_store.close()


def test_a_key_that_was_found_somewhere_can_be_revoked(keys: Say) -> None:
    """A whole key is accepted instead of its id."""
    key = keys("create", "leaky", "--bandit", "*", "--scope", "read")[1].strip()
    assert keys("revoke", key)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (
            ("create", "x", "--bandit", "ofers", "--scope", "read"),
            "no bandit 'ofers'; known bandits: offers",
        ),
        (("create", "x", "--bandit", "*", "--scope", "write"), "unknown scope 'write'"),
        (
            ("create", "x", "--bandit", "*", "--scope", "read", "--rate", "0"),
            "requests/s above 0",
        ),
        (("create", "", "--bandit", "*", "--scope", "read"), "the name must be text"),
        (("revoke", "nobody"), "there is no key 'nobody'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    keys: Say, arguments: tuple[str, ...], why: str
) -> None:
    """Nothing is created."""
    code, out, text = keys(*arguments)
    assert (code, out) == (2, "")
    assert why in text
    assert text.count("\n") == 1


def test_every_change_of_a_key_is_a_record(keys: Say, store: Store) -> None:
    """In the journal of each bandit that it is for, once: who, when, and why."""
    with store.journal("offers") as journal:
        start = journal.end(0)
        args = ("create", "told shop", "--bandit", "*", "--scope", "reward", "--reason", "a launch")
        _, key, _ = keys(*args)
        id = key[4:12]
        for reason in ("it leaked", "again"):
            assert keys("revoke", id, "--reason", reason)[0] == 0
        events = [record.event for record in journal.read(0, start, 100)]
    changes = [event for event in events if isinstance(event, KeyChanged)]
    assert [
        (event.key, event.name, event.change, event.scopes, event.reason) for event in changes
    ] == [
        (id, "told shop", "created", ("reward",), "a launch"),
        (id, "told shop", "revoked", ("reward",), "it leaked"),
    ]
    assert all("@" in event.actor and event.at_us > 0 for event in changes)
