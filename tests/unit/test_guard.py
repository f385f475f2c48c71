"""The guard: what it does when its look at the keys fails, and that a look forgets nothing.

The store is a mock: when it fails, and with what, cannot be timed with a real database. Requests
through a real one are in tests/integration/test_service_keys.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from belated.exceptions import AccessDenied, JournalUnavailable
from belated.journals.keys import LiveKey
from belated.service.access.authorizer import Authorizer
from belated.service.http.problems import problem_of
from belated.service.runtime import ThreadRuntime
from belated.wire.keys import hash_of, new_key
from tests.waiting import eventually


class Store:
    """Gives what it is told to, or fails."""

    def __init__(self, *rows: LiveKey) -> None:
        self.rows = list(rows)
        self.error: Exception | None = None
        self.looks = 0

    def live(self) -> list[LiveKey]:
        """What there is."""
        self.looks += 1
        if self.error is not None:
            raise self.error
        return list(self.rows)

    def close(self) -> None:
        """Nothing."""


KEY, ID = new_key()
HEADERS = {b"host": b"here", b"authorization": f"Bearer {KEY}".encode()}


def row(rate: float | None = None) -> LiveKey:
    """The key as it is kept."""
    return LiveKey(ID, "shop", ("offers",), ("decide",), rate, hash_of(KEY))


@pytest.fixture
def store() -> Store:
    """One with a key."""
    return Store(row())


@pytest.fixture
def guard(store: Any) -> Iterator[Authorizer]:
    """That looks all the time."""
    authorizer = Authorizer(store, ThreadRuntime(), poll=0.005)
    yield authorizer
    authorizer.close()


def status(guard: Authorizer) -> int:
    """Of a request with the key: 200 if it may pass."""
    try:
        guard.authorize(HEADERS, "decide", "offers")
    except AccessDenied as error:
        return problem_of(error)[0].status
    return 200


@pytest.mark.parametrize("error", [JournalUnavailable("away"), ValueError("whatever"), OSError()])
def test_no_failure_ends_the_looking(guard: Authorizer, store: Store, error: Exception) -> None:
    """Meanwhile the known keys work, and what is revoked is noticed when it is over."""
    store.error = error
    store.rows = []
    looks = store.looks
    eventually(lambda: store.looks > looks + 3)
    assert status(guard) == 200
    assert guard.age > 0.0
    store.error = None
    eventually(lambda: status(guard) == 401)
    assert guard.known == 0


def test_a_look_does_not_give_back_what_was_used_up(store: Store) -> None:
    """The rate of a key that has not changed goes on; of one that has, it begins anew."""
    store.rows = [row(rate=0.001)]
    guard = Authorizer(store, ThreadRuntime(), poll=0.005)  # type: ignore[arg-type]
    try:
        assert [status(guard), status(guard)] == [200, 429]
        key, id = new_key()
        store.rows = [row(rate=0.001), LiveKey(id, "other", ("*",), ("read",), None, hash_of(key))]
        eventually(lambda: guard.known == 2)
        assert status(guard) == 429
        store.rows = [row(rate=None)]
        eventually(lambda: status(guard) == 200)
    finally:
        guard.close()


def test_a_service_without_tokens_lets_nobody_pass_without_a_key(store: Any) -> None:
    """With tokens, a request for a reward may come as far as its token."""
    for tokens in (False, True):
        guard = Authorizer(store, ThreadRuntime(), tokens=tokens, poll=60)
        try:
            for scope in ("decide", "read", "admin"):
                with pytest.raises(AccessDenied):
                    guard.authorize({}, scope, "offers")
            if tokens:
                assert guard.authorize({}, "reward", "offers") is None
            else:
                with pytest.raises(AccessDenied):
                    guard.authorize({}, "reward", "offers")
        finally:
            guard.close()
