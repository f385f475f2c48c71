"""Decision ids, and the partition that each belongs to.

A generated id is a UUIDv7 written as 32 lowercase hex digits. From left to right it holds

* 48 bits: milliseconds since 1970, so that ids sort by time;
* 4 bits: the version, 7;
* 12 bits: the *slot*, a number from 0 to 4095;
* 2 bits: the variant;
* 62 random bits from the operating system.

Callers may use their own ids: any string of at most 128 bytes. The *key* of an id is 16 bytes. A
generated id is its own key; any other text is hashed into a key of version 8. The two kinds
therefore never share a key, whatever text a caller sends. The slot has the same position in both.
A journal of P partitions stores the events of an id in partition slot mod P. Because this depends
only on the id, an event is always stored in the partition of its decision.

After a decision is erased, an *erased key* replaces its id: the first half of the key, by which
journals index records, followed by a hash. The id cannot be recovered from the erased key.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from typing import Any

from belated.core.inputs import must_be
from belated.exceptions import InvalidInput

#: The number of slots, and the maximum number of partitions.
SLOTS = 4096
#: The maximum length of an id, in bytes of UTF-8.
MAX_ID_BYTES = 128
#: The size of an erased key: half a key and a hash of 16 bytes.
ERASED_KEY_BYTES = 24

# Copying a hash object costs half as much as creating one.
_HASH = blake2b(digest_size=16)
_SUBJECT_HASH = blake2b(b"\0", digest_size=16)

_MILLISECONDS = 1 << 48  # upper bound of the time in an id, in the year 10889

# The 80 bits after the time are drawn for 400 ids at once, with a single system call.
_BLOCK = 400
_RANDOM_BITS = int.from_bytes(b"\x0f\xff\x3f\xff\xff\xff\xff\xff\xff\xff" * _BLOCK)
_FIXED_BITS = int.from_bytes(b"\x70\x00\x80\x00\x00\x00\x00\x00\x00\x00" * _BLOCK)
_tails: list[str] = []

if hasattr(os, "register_at_fork"):
    # Random bits drawn before a fork belong to the parent, so that processes never share an id.
    os.register_at_fork(after_in_child=_tails.clear)


def new_id(now_us: int, slot: int | None = None) -> str:
    """Return a new id.

    Args:
        now_us: the time in microseconds since 1970.
        slot: the slot, from 0 to 4095; by default, a random slot.

    >>> id = new_id(1_700_000_000_000_000, slot=5)
    >>> id[:16]
    '018bcfe568007005'
    >>> id == new_id(1_700_000_000_000_000, slot=5)
    False
    >>> slot_of(key_of(id))
    5
    """
    now_ms = now_us // 1000
    if not 0 <= now_ms < _MILLISECONDS:
        raise must_be("now_us", "microseconds since 1970", now_us)
    try:
        tail = _tails.pop()
    except IndexError:
        tail = _refill()
    if slot is None:
        return f"{now_ms:012x}{tail}"
    if not 0 <= slot < SLOTS:
        raise must_be("slot", f"from 0 to {SLOTS - 1}", slot)
    return f"{now_ms:012x}7{slot:03x}{tail[4:]}"


def subject_id(subject: str) -> str:
    """Return the id under which journals index the events of a subject.

    No decision can have this id: decision ids contain no NUL character.

    >>> slot_of(key_of(subject_id("user-17")))
    2915
    """
    return f"\0{subject}"


def subject_key(subject: bytes | memoryview) -> bytes:
    """Return the key of a subject's id, given the subject's name as UTF-8.

    >>> subject_key(b"user-17") == key_of(subject_id("user-17"))
    True
    """
    hashed = _SUBJECT_HASH.copy()
    hashed.update(subject)
    return _keyed(hashed)


def slot_of_subject(subject: str) -> int:
    """Return the slot shared by the ids of all decisions for a subject."""
    return slot_of(key_of(subject_id(subject)))


def check_id(id: Any, what: str = "the id") -> str:
    """Return ``id``, or its ``id`` attribute if it is a decision; raise unless it is valid.

    An id is text of 1 to 128 bytes of UTF-8 without NUL.

    >>> check_id("order-17")
    'order-17'
    >>> check_id("")
    Traceback (most recent call last):
    belated.exceptions.InvalidInput: the id must be text of 1 to 128 bytes, got ''
    """
    if type(id) is str and 0 < len(id) <= MAX_ID_BYTES and id.isascii() and "\0" not in id:
        return id
    if not isinstance(id, str):
        if isinstance(getattr(id, "id", None), str):  # the decision itself was passed
            return check_id(id.id, what)
        example = "decision.id" if id is None else f"decision.id, or {str(id)!r}"
        raise InvalidInput(f"{what} must be text, such as {example}; got {id!r}", id)
    if not id:
        raise InvalidInput(f"{what} must be text of 1 to {MAX_ID_BYTES} bytes, got ''", id)
    try:
        size = len(id.encode()) if len(id) <= MAX_ID_BYTES else len(id)
    except UnicodeEncodeError:
        message = f"{what} must be text, but {id!r} contains a lone surrogate"
        raise InvalidInput(message, id) from None
    if size > MAX_ID_BYTES:
        message = f"{what} {id[:20]!r}… is too long: at most {MAX_ID_BYTES} bytes are allowed"
        raise InvalidInput(message, id)
    if "\0" in id:
        raise InvalidInput(f"{what} must not contain a NUL character, got {id!r}", id)
    return id


def key_of(id: str) -> bytes:
    """Return the 16-byte key of an id: its own bytes if it was generated, otherwise a hash.

    >>> key_of("018bcfe568007005ab1c2d3e4f506172").hex()
    '018bcfe568007005ab1c2d3e4f506172'
    >>> key_of("order-17").hex()
    'dfc164b129ef8f11861bd2062345a12b'
    """
    if len(id) == 32 and id[12] == "7" and id[16] in "89ab":
        try:
            key = bytes.fromhex(id)
        except ValueError:
            pass
        else:
            if key.hex() == id:  # fromhex also accepts capitals and spaces
                return key
    hashed = _HASH.copy()
    hashed.update(id.encode())
    return _keyed(hashed)


def _keyed(hashed: blake2b) -> bytes:
    digest = bytearray(hashed.digest())
    digest[6] = digest[6] & 0x0F | 0x80
    return bytes(digest)


def erased_key_of(id: str) -> bytes:
    """Return the 24 bytes that replace an id when its decision is erased.

    The first half of the key locates the records; in a generated id it holds the time and the
    slot. A hash of the whole key replaces the second half.

    >>> erased_key_of("018bcfe568007005ab1c2d3e4f506172").hex()
    '018bcfe56800700558e505faf73f57ea6218a819732c58e4'
    """
    key, hashed = key_of(id), _HASH.copy()
    hashed.update(key)
    return key[:8] + hashed.digest()


def time_of(id: str) -> int | None:
    """Return when an id was generated, in microseconds since 1970; None if a caller chose the id.

    >>> time_of("018bcfe568007005ab1c2d3e4f506172")
    1700000000000000
    >>> time_of("order-17") is None
    True
    """
    key = key_of(id)
    return int.from_bytes(key[:6]) * 1000 if key[6] >> 4 == 7 else None


def slot_of(key: bytes) -> int:
    """Return the slot of a key, from 0 to 4095.

    >>> slot_of(bytes.fromhex("018bcfe568007005ab1c2d3e4f506172"))
    5
    """
    return (key[6] & 0x0F) << 8 | key[7]


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition in which a journal stores the events of a key.

    >>> partition_of(key_of("018bcfe568007005ab1c2d3e4f506172"), 4)
    1
    """
    return slot_of(key) % partitions


def check_partitions(partitions: Any) -> int:
    """Return ``partitions`` as an int; raise unless it is a power of two from 1 to 4096.

    >>> check_partitions(16)
    16
    """
    whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not (whole and 1 <= partitions <= SLOTS and partitions.bit_count() == 1):
        raise must_be("partitions", f"a power of two from 1 to {SLOTS}", partitions)
    return int(partitions)


def _refill() -> str:
    """Draw the random parts of many ids; return the first and store the others."""
    bits = int.from_bytes(os.urandom(10 * _BLOCK)) & _RANDOM_BITS | _FIXED_BITS
    first, *tails = bits.to_bytes(10 * _BLOCK).hex(" ", 10).split()
    _tails.extend(tails)
    return first
