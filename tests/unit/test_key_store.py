"""The API keys of a service, on the cells of any store."""

from __future__ import annotations

import secrets
from contextlib import closing

import pytest

from belated.exceptions import JournalClosed
from belated.journals import MemoryStore
from belated.journals.keys import KeyHistory, KeyStore, LiveKey
from belated.testing import ManualClock


class TestKeys:
    """In memory."""

    def open_keys(self, clock: ManualClock) -> KeyStore:
        """Open them in a store of their own."""
        self.store = MemoryStore(clock=clock)
        return self.store.keys()

    def reopen(self, store: object, clock: ManualClock) -> KeyStore:
        """Open the same a second time, while the first are still open."""
        return self.store.keys()

    def test_a_key_comes_back_whole(self) -> None:
        """In whatever object the store is opened."""
        clock, name = ManualClock(), _unique("shop é")
        id, hash = _unique("id"), secrets.token_bytes(32)
        with closing(self.open_keys(clock)) as store, closing(self.reopen(store, clock)) as reader:
            assert store.create(id, name, ["offers", "ключ"], ["decide", "read"], 2.5, hash)
            (live,) = [key for key in reader.live() if key.name == name]
            bandits, scopes = ("offers", "ключ"), ("decide", "read")
            assert live == LiveKey(id, name, bandits, scopes, 2.5, hash)
            (record,) = [key for key in reader.all() if key.name == name]
            assert record == KeyHistory(id, name, bandits, scopes, 2.5, record.created, None)
            assert record.created.utcoffset() is not None

    def test_two_keys_at_most_work_under_a_name(self) -> None:
        """So that one can be replaced, and old ones do not gather; a revoked one makes room."""
        clock, name = ManualClock(), _unique("shop")
        with closing(self.open_keys(clock)) as store:
            first, second = _add(store, name), _add(store, name)
            assert first is not None
            assert second is not None
            assert _add(store, name) is None
            assert _add(store, _unique("another shop")) is not None
            assert store.revoke(first)
            clock.now += 1
            third = _add(store, name)
            assert third is not None
            assert {key.id for key in store.live() if key.name == name} == {second, third}

    def test_revoked_keys_stay_known(self) -> None:
        """The newest stands first; to revoke a key again changes nothing."""
        clock, name = ManualClock(), _unique("shop")
        with closing(self.open_keys(clock)) as store:
            ids = []
            for _ in range(3):
                id = _add(store, name)
                assert id is not None
                clock.now += 1_000_000
                assert store.revoke(id)
                ids.append(id)
            before = [key for key in store.all() if key.name == name]
            assert [key.id for key in before] == ids[::-1]
            assert all(key.revoked is not None and key.revoked >= key.created for key in before)
            clock.now += 1_000_000
            assert store.revoke(ids[0])
            assert [key for key in store.all() if key.name == name] == before
            assert not [key for key in store.live() if key.name == name]
            assert not store.revoke(_unique("nobody"))

    def test_an_id_or_hash_that_is_known_is_refused(self) -> None:
        """Also if its key was revoked."""
        name, id, hash = _unique("shop"), _unique("id"), secrets.token_bytes(32)
        with closing(self.open_keys(ManualClock())) as store:
            assert store.create(id, name, ["*"], ["read"], None, hash)
            store.revoke(id)
            assert not store.create(id, name, ["*"], ["read"], None, secrets.token_bytes(32))
            assert not store.create(_unique("id"), name, ["*"], ["read"], None, hash)

    def test_a_closed_store_says_so(self) -> None:
        """Every call raises JournalClosed."""
        store = self.open_keys(ManualClock())
        store.close()
        store.close()
        for call in (lambda: _add(store, "shop"), store.live, store.all, lambda: store.revoke("")):
            with pytest.raises(JournalClosed):
                call()


def _unique(text: str) -> str:
    return f"{text} {secrets.token_hex(8)}"


def _add(store: KeyStore, name: str) -> str | None:
    """The id of a new key under a name, None if there may be none."""
    id = _unique("id")
    created = store.create(id, name, ["*"], ["read"], None, secrets.token_bytes(32))
    return id if created else None
