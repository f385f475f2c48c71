"""The index of keys, compared with a dictionary."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy as np
import pytest

from belated.fold import table as module
from belated.fold.packing import pack_lines
from belated.fold.table import EntryTable, Index
from belated.model.kernels import pages, plain
from belated.model.kernels.pages import FORGOTTEN


class Keys(Index):
    """An index with the table of its keys."""

    def __init__(self) -> None:
        self.table = EntryTable()
        super().__init__(self.table)

    def add(self, key: bytes) -> int:
        """Add a line to the table and the index; return its number."""
        assert self.find_or_enter(key) == -1
        return self.table.append(key, recorded=0, position=1, at=0, state=1, flags=0, crc=0)

    def take(self, keys: list[bytes], base: int, removed: set[int]) -> None:
        """Restore keys as from a snapshot, except for the numbers that were removed."""
        source = Keys()
        for number, key in enumerate(keys, base):
            flags = FORGOTTEN if number in removed else 0
            source.table.append(key, recorded=0, position=1, at=0, state=1, flags=flags, crc=0)
        self.table.restore(pack_lines(source.table).values(), base)
        self.restore(self.table.column("flags") == 0)


def keys_of(count: int, seed: int = 1) -> list[bytes]:
    """Return distinct random keys."""
    rng = random.Random(seed)
    return [rng.randbytes(12) + i.to_bytes(4) for i in range(count)]


def check(index: Keys, known: dict[bytes, int], unknown: list[bytes]) -> None:
    """Assert that known keys map to their numbers, and unknown keys are not found."""
    assert [index.find(key) for key in known] == list(known.values())
    assert {index.find(key) for key in unknown} <= {-1}


@pytest.fixture(params=[False, True], ids=["random", "colliding"])
def colliding(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Use the hash of this process, or one under which all keys collide."""
    if request.param:

        def constant(high: Any, low: Any, *state: int) -> Any:
            return high & 0

        kernels = replace(plain(), sip_hash=constant)
        with (
            mock.patch.object(pages, "sip_hash", constant),
            mock.patch.object(module, "best", return_value=kernels),
        ):
            yield True
    else:
        yield False


def test_an_empty_index_finds_nothing(colliding: bool) -> None:
    """The first key gets the number 0."""
    index = Keys()
    assert (len(index.table), index.table.next, index.find(bytes(16))) == (0, 0, -1)
    assert index.add(bytes(16)) == 0
    assert (len(index.table), index.table.next, index.find(bytes(16))) == (1, 1, 0)


def test_numbers_are_assigned_in_order_as_the_table_grows(colliding: bool) -> None:
    """This holds even if all keys collide."""
    keys = keys_of(400)
    index = Keys()
    assert [index.add(key) for key in keys] == list(range(400))
    check(index, {key: i for i, key in enumerate(keys)}, keys_of(100, seed=2))


def test_a_removed_key_is_not_found_and_may_be_added_again(colliding: bool) -> None:
    """It gets a new number; the others keep theirs."""
    keys = keys_of(300)
    index = Keys()
    numbers = {key: index.add(key) for key in keys}
    removed = keys[::3]
    for key in removed:
        index.remove(numbers.pop(key))
    check(index, numbers, removed)
    for key in removed[:50]:
        numbers[key] = index.add(key)
        assert numbers[key] >= 300
    check(index, numbers, removed[50:])


def test_a_number_may_be_removed_twice(colliding: bool) -> None:
    """The second removal has no effect."""
    index = Keys()
    numbers = {key: index.add(key) for key in keys_of(20)}
    key, number = numbers.popitem()
    index.remove(number)
    index.remove(number)
    check(index, numbers, [key])


def test_numbers_at_the_front_can_be_dropped(colliding: bool) -> None:
    """The remaining numbers stay the same, even when the index is rebuilt."""
    keys = keys_of(500)
    index = Keys()
    numbers = {key: index.add(key) for key in keys[:200]}
    for key in keys[:150]:
        index.remove(numbers.pop(key))
    index.table.drop(150)
    assert (len(index.table), index.table.base, index.table.next) == (50, 150, 200)
    numbers |= {key: index.add(key) for key in keys[200:]}
    assert numbers[keys[-1]] == 499
    check(index, numbers, keys[:150])


def test_an_index_may_be_emptied_again_and_again(colliding: bool) -> None:
    """An array full of removed entries is rebuilt without them."""
    index = Keys()
    for number, key in enumerate(keys_of(300)):
        assert index.add(key) == number
        assert index.find(key) == number
        index.remove(number)
        index.table.drop(1)
        assert index.find(key) == -1
    assert (len(index.table), index.table.next) == (0, 300)


def test_numbers_far_beyond_the_base_are_distinguished(colliding: bool) -> None:
    """A few remaining decisions keep the base small; an entry has only a number's last bits."""
    keys = keys_of(3000)
    index = Keys()
    numbers = {key: index.add(key) for key in keys[:20]}
    for number, key in enumerate(keys[20:], 20):
        assert index.add(key) == number
        assert index.find(key) == number
        index.remove(number)
    assert (len(index.table), index.table.base, index.table.next) == (3000, 0, 3000)
    check(index, numbers, keys[20:])


@pytest.mark.parametrize("base", [0, 1 << 31, (1 << 40) + 12345])
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_numbers_may_be_large(base: int, wide: bool) -> None:
    """Entries have 4 bytes, or 8 if numbers need more bits."""
    keys = keys_of(1000)
    with mock.patch.object(module, "_MANY", 0 if wide else module._MANY):
        index = Keys()
        index.take(keys[:500], base, set(range(base, base + 300)))
        index.table.drop(300)
        for key in keys[500:]:
            index.add(key)
        assert index._places.itemsize == (8 if wide else 4)
    check(index, {key: base + i for i, key in enumerate(keys) if i >= 300}, keys[:300])


def test_a_restored_index_finds_keys_that_were_not_removed(colliding: bool) -> None:
    """Keys, base and removed numbers are enough to restore it, even if it is empty."""
    keys = keys_of(200)
    index = Keys()
    removed = {1010, 1011, 1199}
    index.take(keys, 1000, removed)
    numbers = {key: 1000 + i for i, key in enumerate(keys) if 1000 + i not in removed}
    check(index, numbers, [keys[10], keys[11], keys[199]])
    assert index.add(keys[10]) == 1200
    empty = Keys()
    empty.take([], 7, set())
    assert empty.find(keys[0]) == -1
    assert empty.add(keys[0]) == 7


def test_a_hundred_thousand_keys() -> None:
    """They are added, half of them removed and dropped, and the others restored."""
    keys = keys_of(100_000)
    index = Keys()
    numbers = {key: index.add(key) for key in keys}
    check(index, numbers, keys_of(1000, seed=2))
    for number in range(50_000):
        index.remove(number)
    index.table.drop(50_000)
    for key in keys[:50_000]:
        del numbers[key]
    check(index, numbers, keys[:50_000])
    restored = Keys()
    restored.take(keys[50_000:], 50_000, {50_001})
    del numbers[keys[50_001]]
    check(restored, numbers, [keys[50_001], *keys[:1000]])


@pytest.mark.parametrize("same", [slice(0, 8), slice(8, 16), slice(4, 12)], ids=str)
def test_keys_that_share_bytes_are_distinguished(same: slice) -> None:
    """Callers may choose similar ids; each is found quickly."""
    keys = []
    for i in range(20_000):
        key = bytearray(b"0123456789abcdef")
        indices = [
            free_index for free_index in range(16) if not same.start <= free_index < same.stop
        ]
        for at, byte in zip(indices, i.to_bytes(8, "little"), strict=True):
            key[at] = byte
        keys.append(bytes(key))
    index = Keys()
    numbers = {key: index.add(key) for key in keys}
    check(index, numbers, [])
    table = index._places
    places = [slot_index for slot_index, entry in enumerate(table) if entry >= 0]
    longest, run = 0, 0
    for slot, next_place in pairwise(places):
        run = run + 1 if next_place == slot + 1 else 0
        longest = max(longest, run)
    assert longest < 2000  # of 20,000: they do not all collide


def test_chosen_keys_collide_no_more_than_random_ones() -> None:
    """With a linear hash, keys that differ only in the first bits of their halves collide."""
    chosen = [
        (first << 56 | 0x7000).to_bytes(8) + (1 << 63 | second << 54).to_bytes(8)
        for first in range(1 << 8)
        for second in range(1 << 8)
    ]
    steps = []
    for keys in (chosen, keys_of(len(chosen))):
        index = Keys()
        for key in keys:
            index.add(key)
        places = index.places
        free = np.flatnonzero(np.append(places, -1) == -1)
        steps.append(np.diff(free).max())  # the longest run of filled places
    assert steps[0] < 3 * steps[1]
