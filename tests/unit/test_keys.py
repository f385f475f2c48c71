"""Keys: how they look, what they may do, and how often."""

from __future__ import annotations

import random
import re
import string

import pytest

from belated.client import Client
from belated.exceptions import InvalidInput
from belated.service.access.authorizer import auth_at
from belated.wire.keys import (
    LENGTH,
    SCOPES,
    Key,
    check_key,
    check_rate,
    check_scope,
    hash_of,
    id_in,
    looks_whole,
    new_key,
)


def test_a_key_can_be_recognised_without_a_look_up() -> None:
    """By a pattern for scanners, and by its checksum; its id stands in it."""
    key, id = new_key()
    assert re.fullmatch(r"blt_[0-9A-Za-z]{8}_[0-9A-Za-z]{38}", key)
    assert len(key) == LENGTH
    assert looks_whole(key)
    assert id_in(key) == id_in(id) == id_in(f"blt_{id}") == id


def test_no_two_keys_are_alike() -> None:
    """All of the secret is random: 62³² of them are more than 2¹⁶⁰."""
    secrets = {new_key()[0][13:45] for _ in range(1_000)}
    assert len(secrets) == 1_000
    for position in range(32):
        assert len({secret[position] for secret in secrets}) > 50
    assert 62**32 > 2**160


def test_a_mistyped_key_is_noticed() -> None:
    """Any one character changed, two swapped, one missing or one too many: no look-up is needed."""
    key, _ = new_key()
    rng = random.Random(7)
    for index in range(LENGTH):
        letter = rng.choice([c for c in string.ascii_letters + string.digits if c != key[index]])
        assert not looks_whole(key[:index] + letter + key[index + 1 :])
        assert not looks_whole(key[:index] + key[index + 1 :])
        assert not looks_whole(key[:index] + "x" + key[index:])
        swapped = key[:index] + key[index + 1 : index + 2] + key[index] + key[index + 2 :]
        assert swapped == key or not looks_whole(swapped)
    for text in ("", "blt_", "é" * LENGTH, key.swapcase()):
        assert not looks_whole(text)


def test_only_a_hash_is_kept() -> None:
    """It does not contain the id or the key."""
    key, id = new_key()
    assert len(hash_of(key)) == 32
    assert id.encode() not in hash_of(key)


@pytest.mark.parametrize("wrong", ["secret", "", None, 7, "blt_aaaaaaaa_" + "b" * 38])
def test_malformed_keys_are_rejected(wrong: object) -> None:
    """The error does not repeat it, because it may be another secret."""
    with pytest.raises(InvalidInput, match="not a belated API key") as error:
        check_key(wrong)
    assert error.value.value is None
    assert "bbb" not in str(error.value)
    assert "secret" not in str(error.value)


def test_scopes_and_rates_are_checked() -> None:
    """Errors list the known scopes, and the unit of rates."""
    assert [check_scope(scope) for scope in SCOPES] == list(SCOPES)
    with pytest.raises(InvalidInput, match="choose from decide, reward, read, admin"):
        check_scope("write")
    assert check_rate(None) is None
    assert check_rate(5) == 5.0
    for rate in (0, -1.0, float("nan"), float("inf"), True, "5"):
        with pytest.raises(InvalidInput, match="requests/s above 0"):
            check_rate(rate)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_key_may_do_what_it_says_and_no_more(scope: str) -> None:
    """No scope includes another."""
    key = Key("id", "shop", frozenset({"offers"}), frozenset({scope}))
    for permission in SCOPES:
        assert key.may(permission, "offers") == (permission == scope)
        assert key.may(permission, None) == (permission == scope)
        assert not key.may(permission, "others")
    global_key = Key("id", "shop", frozenset({"*"}), frozenset({scope}), everywhere=True)
    assert global_key.may(scope, "others")  # type: ignore[arg-type]


def test_a_rate_is_kept_over_any_time() -> None:
    """At most one second's worth at once, and the rate in the long run."""
    rng = random.Random(3)
    for rate in (0.5, 1.0, 3.0, 250.0):
        key = Key("id", "shop", frozenset(), frozenset(), rate=rate)
        now, accepted = 1_000.0, 0
        for _ in range(20_000):
            now += rng.expovariate(10 * rate)
            wait = key.wait(now)
            accepted += wait == 0.0
            assert 0.0 <= wait <= 1.0 / rate + 1e-9
        elapsed = now - 1_000.0
        assert 0.8 * rate * elapsed <= accepted <= rate * elapsed + max(1.0, rate) + 1


def test_whoever_waits_as_told_may_ask() -> None:
    """And a clock that stands still gives nothing away."""
    key = Key("id", "shop", frozenset(), frozenset(), rate=4.0)
    assert [key.wait(0.0) for _ in range(4)] == [0.0] * 4
    wait = key.wait(0.0)
    assert key.wait(0.0) == wait > 0.0
    assert key.wait(wait) == 0.0


def test_who_may_ask_must_be_said_where_others_can() -> None:
    """On this machine alone nothing need be said."""
    for local_host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert auth_at(local_host, None) == "off"
        assert auth_at(local_host, "keys") == "keys"
    for remote_host in ("0.0.0.0", "::", "", "10.0.0.7", "decisions.example"):
        with pytest.raises(InvalidInput, match=r'auth = "keys" under \[server\]'):
            auth_at(remote_host, None)
        assert auth_at(remote_host, "off") == "off"


def test_a_client_never_shows_its_key() -> None:
    """Neither in its repr, nor where the key is refused."""
    key, _ = new_key()
    with Client("http://localhost:1", bandit="offers", key=key) as client:
        assert key not in repr(client) + repr(vars(client))
        assert key not in repr(vars(client._transport))
    with pytest.raises(InvalidInput) as error:
        Client("http://localhost:1", bandit="offers", key=key[:-1])
    assert key[:-1] not in str(error.value)
