import os
import subprocess
import sys
import threading
import time
import uuid
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given, strategies as st

from belated.core.ids import (
    SLOTS,
    check_id,
    check_partitions,
    key_of,
    new_id,
    partition_of,
    slot_of,
)
from belated.exceptions import InvalidInput

NOW = 1_700_000_000_000_000


@pytest.mark.parametrize("slot", [None, 0, 1, 0xABC, SLOTS - 1])
def test_an_id_is_a_uuid_of_version_7(slot: int | None) -> None:
    """32 lowercase hex digits that Python's own UUID takes apart in the same way."""
    hex_id = new_id(NOW, slot)
    parsed = uuid.UUID(hex=hex_id)
    assert parsed.hex == hex_id
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert parsed.int >> 80 == NOW // 1000
    if slot is not None:
        assert parsed.int >> 64 & 0xFFF == slot


def test_ids_sort_by_time() -> None:
    """A later millisecond gives a greater text, from 1970 to the year 10889."""
    times = [0, 999, 1000, 2000, NOW, NOW + 1000, 2**48 * 1000 - 1]
    ids = [new_id(now) for now in times[1:]]
    assert ids == sorted(ids)


def test_ids_are_not_repeated() -> None:
    """Across several refills, of one millisecond and one slot."""
    assert len({new_id(NOW, slot=1) for _ in range(10_000)}) == 10_000


def test_slots_at_random_fill_every_partition_alike() -> None:
    """Of 64,000 ids, each of 16 partitions gets 4,000 within five standard deviations."""
    counts = [0] * 16
    for _ in range(64_000):
        counts[partition_of(key_of(new_id(NOW)), 16)] += 1
    assert max(abs(count - 4_000) for count in counts) < 5 * 61.3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_does_not_repeat_ids() -> None:
    """Parent and child share nothing of what was drawn before."""
    code = (
        "import os; from belated.core.ids import new_id; new_id(0, 0); child = os.fork();"
        "made = [new_id(0, 0) for _ in range(1000)];"
        "child and os.waitpid(child, 0);"  # the parent prints after the child
        "print(*made)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert len(process.stdout.split()) == len(set(process.stdout.split())) == 2000


def test_threads_do_not_repeat_ids() -> None:
    """Four threads at once draw 20,000 different ones."""
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend([new_id(NOW, 0) for _ in range(5_000)]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 20_000


@pytest.mark.parametrize("slot", [-1, SLOTS, 2**70])
def test_a_slot_out_of_range_is_refused(slot: int) -> None:
    """There are 4096."""
    with pytest.raises(InvalidInput, match="slot"):
        new_id(NOW, slot)


@pytest.mark.parametrize("now", [-1, 2**48 * 1000])
def test_a_time_that_does_not_fit_is_refused(now: int) -> None:
    """Before 1970, or after the 48 bits are used up."""
    with pytest.raises(InvalidInput, match="now_us"):
        new_id(now)


def test_the_key_of_an_id_made_here_is_its_own_bytes() -> None:
    """And its slot is the one it was made with."""
    for slot in (0, 5, 0xABC, SLOTS - 1):
        hex_id = new_id(NOW, slot)
        assert key_of(hex_id).hex() == hex_id
        assert slot_of(key_of(hex_id)) == slot


OTHERS = [
    "a",
    "order-17",
    "ключ 🎲",
    "0123456789ABCDEF0123456789ABCDEF",  # capitals
    "0123456789abcdef 123456789abcdef",  # fromhex would pass over the blank
    "0123456789abcdef0123456789abcde",  # a digit too few
    "0123456789abcdef0123456789abcdef0",  # one too many
    "0123456789abcdef0123456789abcdeg",
    "٠١٢٣٤٥٦٧٨٩abcdef0123456789abcdef",  # digits, but not ours
    "018bcfe5-6800-7005-ab1c-2d3e4f506172",
]


@pytest.mark.parametrize("id", OTHERS)
def test_the_key_of_any_other_id_is_its_hash(id: str) -> None:
    """Sixteen bytes of blake2b over its UTF-8, marked as version 8; the slot is where it was."""
    hashed = int.from_bytes(blake2b(id.encode(), digest_size=16).digest())
    key = key_of(id)
    assert int.from_bytes(key) == hashed & ~(0xF << 76) | 0x8 << 76
    assert slot_of(key) == hashed >> 64 & 0xFFF


@given(
    st.text(min_size=1, max_size=40)
    | st.uuids().map(lambda value: value.hex)
    | st.binary(min_size=16, max_size=16).map(bytes.hex)
)
def test_no_text_has_the_key_of_an_id_that_was_made_here(text: str) -> None:
    """Two disjoint spaces: a key is its own text, or of version 8."""
    key = key_of(text) if text.isprintable() else key_of("a")
    if key.hex() == text:
        assert key[6] >> 4 == 7
        assert key[8] >> 6 == 0b10
    else:
        assert key[6] >> 4 == 8
        assert key_of(key.hex()) != key  # the alias that a caller could send


@pytest.mark.parametrize("partitions", [2**n for n in range(13)])
def test_partitions_divide_each_other(partitions: int) -> None:
    """The partition among P is that among 4096, modulo P: journals can be split and merged."""
    for id in [*OTHERS, new_id(NOW), new_id(NOW, 4095)]:
        partition = partition_of(key_of(id), partitions)
        assert partition == slot_of(key_of(id)) % partitions
        assert check_partitions(partitions) == partitions


@pytest.mark.parametrize("partitions", [0, -1, 3, 8192, 1.0, "2", True, None])
def test_what_is_no_number_of_partitions_is_refused(partitions: Any) -> None:
    """Only powers of two up to 4096 are."""
    with pytest.raises(InvalidInput, match="power of two"):
        check_partitions(partitions)


@pytest.mark.parametrize("id", [*OTHERS, "x" * 128, "é" * 64, "\n"])
def test_text_of_at_most_128_bytes_is_an_id(id: str) -> None:
    """It is given back as it is."""
    assert check_id(id) is id


BAD_IDS: list[Any] = [None, 7, b"a", "", "x" * 129, "é" * 65, "\ud800", "a\0b", "x" * 10**6]


@pytest.mark.parametrize("id", BAD_IDS, ids=lambda id: repr(id)[:20])
def test_anything_else_is_refused(id: Any) -> None:
    """The error carries it, and stays short."""
    with pytest.raises(InvalidInput) as error:
        check_id(id)
    assert error.value.value is id
    assert len(str(error.value)) < 200
    str(error.value).encode()


def test_an_id_costs_about_a_microsecond() -> None:
    """Far below the cost of a decision; the bound is wide, as machines are busy."""
    durations = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(1000):
            new_id(NOW)
        durations.append(time.perf_counter() - start)
    assert min(durations) / 1000 < 10e-6
