"""The fast path of the fold: process a page of records directly from their bytes.

The kernel processes the two simple cases that account for nearly all records: a new, active
decision with a generated id, and the single reward of a pending decision. Subject records are only
listed for later, where folding them after the records that follow gives the same result. The kernel
stops at any other record; the rules of the ledger process that record, and the kernel resumes after
it. The results are identical to those of the rules.

The kernel is plain Python over arrays, but it is only useful when compiled.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Number of zeros after the last event. The kernel may read past the end of an event.
PADDING = 64

#: The columns of the table of entries.
HIGH, LOW, RECORDED, POSITION, AT, MARK, VALUE, TOLD_RECORDED, TOLD_AT, WEIGHT, WHERE = range(11)
#: Indices of the kernel's parameters, some of which it updates: for the table and its index, the
#: rows, and the rules.
(
    USED, BASE, SHIFT, MASK, BITS, NUMBER, TAG, SIP_0, SIP_1, SIP_2, SIP_3, PLACES_TAKEN,
    STORED, FREE, BLOCKS, HANDLE, FAMILY, WINDOW, WATERMARK, PATIENCE, DECIDED, REWARDED,
    NOTED, CREDITS,
) = range(24)  # fmt: skip

#: Base-2 logarithm of the number of entries in a block. Snapshots rewrite the blocks that changed.
BLOCK = 13

#: Encoded decision sources, each a length followed by a name.
SOURCES = np.array(
    [
        list((bytes([0xA0 + len(name)]) + name).ljust(9, b"\0"))
        for name in (b"policy", b"holdout", b"baseline", b"fallback")
    ],
    dtype=np.uint8,
)

_FREE_PLACE = -1
_PENDING, _REWARDED = 1, 2
#: Flags in the second byte of a mark. MORE means that facts about the decision are stored outside
#: its entry; OWNED means that the decision was made for a subject.
ACTIVATED, LATE, CONFLICT, FORGOTTEN, EXPECTED, MORE, WITHHELD, OWNED = (1 << n for n in range(8))
_NEW_FLAGS, _MORE, _OWNED = (ACTIVATED | EXPECTED) << 8, MORE << 8, OWNED << 8
_GREATEST = 3.4028234663852886e38  # the largest float32


# --- primitives: implemented differently in Python and in compiled code ---------------------------


def wrapped(number: int) -> int:
    """Return the low 64 bits of a number as a signed integer."""
    return ((number + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)


def wrapped_compiled(number):  # type: ignore[no-untyped-def]  # noqa: D103
    return number


def hash_of(high: int, low: int, state: NDArray[np.int64]) -> int:
    """Return :func:`sip_hash` for signed numbers."""
    return wrapped(sip_hash(*(int(number) & ALL for number in (high, low, *state))))


def hash_of_compiled(high, low, state):  # type: ignore[no-untyped-def]  # noqa: D103
    return np.int64(
        sip_hash(
            np.uint64(high),
            np.uint64(low),
            np.uint64(state[0]),
            np.uint64(state[1]),
            np.uint64(state[2]),
            np.uint64(state[3]),
        )
    )


def place_of(hashed: int, shift: int) -> int:
    """Return the high bits of a hash, which is shifted right by ``shift``."""
    return (int(hashed) & ((1 << 64) - 1)) >> int(shift)


def place_of_compiled(hashed, shift):  # type: ignore[no-untyped-def]  # noqa: D103
    return np.int64(np.uint64(hashed) >> np.uint64(shift))


#: Primitives and their compiled versions.
SWAPPED_PAGES: dict[Any, Any] = {
    wrapped: wrapped_compiled,
    hash_of: hash_of_compiled,
    place_of: place_of_compiled,
}


# --- the hash of a key ---------------------------------------------------------------------------

ALL = (1 << 64) - 1


def sip_state(first: int, second: int) -> tuple[int, int, int, int]:
    """Return the initial state of SipHash for the two halves of a key."""
    return (
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    )


def sip_hash(high: Any, low: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Return SipHash-1-3 of 16 bytes, which prevents attackers from choosing colliding keys.

    Args:
        high: the first 8 bytes as an unsigned number, or an array of such numbers.
        low: the other 8 bytes.
        a: first number of :func:`sip_state`.
        b: second number.
        c: third number.
        d: fourth number.
    """
    # Constants are derived from ALL, because the compiler would treat smaller literals as signed.
    length, end = ALL >> 63 << 60, ALL >> 56
    a, b, c, d = sip_round(a, b, c, d ^ high)
    a, b, c, d = sip_round(a ^ high, b, c, d ^ low)
    a, b, c, d = sip_round(a ^ low, b, c, d ^ length)
    a, b, c, d = sip_round(a ^ length, b, c ^ end, d)
    a, b, c, d = sip_round(a, b, c, d)
    a, b, c, d = sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


def sip_round(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Mix the four numbers once."""
    a, c = (a + b) & ALL, (c + d) & ALL
    b = ((b << 13 | b >> 51) & ALL) ^ a
    d = ((d << 16 | d >> 48) & ALL) ^ c
    a = (a << 32 | a >> 32) & ALL
    c, a = (c + b) & ALL, (a + d) & ALL
    b = ((b << 17 | b >> 47) & ALL) ^ c
    d = ((d << 21 | d >> 43) & ALL) ^ a
    return a, b, (c << 32 | c >> 32) & ALL, d


# --- MessagePack ----------------------------------------------------------------------------------


def unsigned(data: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """Return a decoded non-negative integer, or -1 for any other value, and the next offset."""
    first = int(data[at])
    if first < 0x80:
        return first, at + 1
    if first < 0xCC or first > 0xCF:
        return -1, at
    size = 1 << (first - 0xCC)
    value = 0
    for i in range(size):
        if i == 0 and size == 8 and data[at + 1] >= 0x80:
            return -1, at
        value = value * 256 + int(data[at + 1 + i])
    return value, at + 1 + size


def after_text(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the offset after a short ASCII string, or -1 for any other value."""
    first = int(data[at])
    if 0xA0 <= first < 0xC0:
        start, size = at + 1, first - 0xA0
    elif first == 0xD9:
        start, size = at + 2, int(data[at + 1])
    else:
        return -1
    if start + size > end:
        return -1
    for i in range(start, start + size):
        if data[i] >= 0x80:
            return -1
    return start + size


def after_source(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the offset after one of :data:`SOURCES`, or -1 for any other value."""
    for n in range(SOURCES.shape[0]):
        size = int(SOURCES[n, 0]) - 0xA0 + 1
        matches = at + size <= end
        for i in range(size):
            matches = matches and data[at + i] == SOURCES[n, i]
        if matches:
            return at + size
    return -1


def after_context(data: NDArray[np.uint8], at: int, names: NDArray[np.uint8]) -> int:
    """Return the offset after a context, or -1 if the rows of its features are not valid."""
    first = int(data[at])
    if not 0xC4 <= first <= 0xC6:
        return -1
    size, at = 0, at + 1
    for _ in range(1 << (first - 0xC4)):
        size, at = size * 256 + int(data[at]), at + 1
    is_found = size == 0 or names.shape[0] == 0
    for n in range(0, names.shape[0], 16):
        matches = size >= 16
        for i in range(16):
            matches = matches and data[at + i] == names[n + i]
        is_found = is_found or matches
    return at + size if is_found else -1


def half_of(data: NDArray[np.uint8], at: int) -> tuple[int, bool]:
    """Parse 16 hexadecimal digits; return the number and whether all digits are valid."""
    value = 0
    for i in range(at, at + 16):
        digit = int(data[i])
        if 48 <= digit < 58:
            digit -= 48
        elif 97 <= digit < 103:
            digit -= 87
        else:
            return 0, False
        value = value * 16 + digit
    return wrapped(value), True


def float_at(data: NDArray[np.uint8], at: int, turned: NDArray[np.uint8]) -> None:
    """Copy the 8 bytes of a big-endian float64 in reverse order."""
    for i in range(8):
        turned[7 - i] = data[at + i]


# --- kernels --------------------------------------------------------------------------------------


def crc_all(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    starts: NDArray[np.int64],
    tables: NDArray[np.int64],
    found: NDArray[np.int64],
) -> int:
    """Compute the checksum of each event, like :func:`zlib.crc32` with a start value per event."""
    at = 0
    for n in range(ends.shape[0]):
        crc = int(starts[n]) ^ 0xFFFFFFFF
        end = int(ends[n])
        while at + 8 <= end:
            crc ^= (
                int(data[at])
                | int(data[at + 1]) << 8
                | int(data[at + 2]) << 16
                | int(data[at + 3]) << 24
            )
            crc = (
                int(tables[7, crc & 255])
                ^ int(tables[6, crc >> 8 & 255])
                ^ int(tables[5, crc >> 16 & 255])
                ^ int(tables[4, crc >> 24])
                ^ int(tables[3, data[at + 4]])
                ^ int(tables[2, data[at + 5]])
                ^ int(tables[1, data[at + 6]])
                ^ int(tables[0, data[at + 7]])
            )
            at += 8
        while at < end:
            crc = int(tables[0, (crc ^ int(data[at])) & 255]) ^ crc >> 8
            at += 1
        found[n] = crc ^ 0xFFFFFFFF
    return len(ends)


@cache
def crc_tables() -> NDArray[np.int64]:
    """Return the lookup tables of :func:`crc_all`, which processes eight bytes at a time."""
    tables = np.zeros((8, 256), dtype=np.int64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
        tables[0, byte] = crc
    for n in range(1, 8):
        tables[n] = tables[0][tables[n - 1] & 255] ^ tables[n - 1] >> 8
    return tables


def fold_page(
    data: NDArray[np.uint8],
    ends: NDArray[np.int64],
    positions: NDArray[np.int64],
    stamps: NDArray[np.int64],
    crcs: NDArray[np.int64],
    first: int,
    cells: NDArray[np.int64],
    floats: NDArray[np.float64],
    places: NDArray[np.int32],
    rows: NDArray[np.float32],
    row_bytes: NDArray[np.uint8],
    free: NDArray[np.int64],
    told: NDArray[np.int64],
    numbers: NDArray[np.float64],
    unmatched: NDArray[np.uint8],
    learned_rows: NDArray[np.float32],
    learned: NDArray[np.float64],
    times: NDArray[np.int64],
    changed: NDArray[np.uint8],
    names: NDArray[np.uint8],
    noted: NDArray[np.int64],
) -> int:
    """Process the records of a page from ``first``; return the index of the first unprocessed one.

    Args:
        data: the bytes of all events.
        ends: end of each event in ``data``.
        positions: positions of the records.
        stamps: times at which the journal recorded the records.
        crcs: checksums that distinguish decisions with the same id.
        first: index of the first record to process.
        cells: the table of entries, with room for all records.
        floats: the memory of ``cells``, as floats.
        places: the index of the table, with room for all records.
        rows: rows of decisions that may still be rewarded, with room for all records.
        row_bytes: the memory of ``rows``, as bytes.
        free: indices of unused rows in ``rows``, with room for all records.
        told: the parameters, indexed by the constants above; updated in place.
        numbers: the dispersion, the largest weight, and the smallest and the largest reward.
        unmatched: filter of keys with unmatched events, indexed by the low bits of a key; 0 means
            that there are none.
        learned_rows: output; the row of each reward.
        learned: output; the value and the weight of each reward, and whether its decision is from
            an earlier page.
        times: output; the times at which each reward's decision and the reward were recorded.
        changed: output; 1 for each block of entries in which an existing entry changed.
        names: names of the features whose rows are valid, 16 bytes each; empty if all are valid.
        noted: output; for each subject record, its index, the entry of the subject's decision (-1
            for a reward), and the start and the end of the subject's name.
    """
    dim = rows.shape[1]
    size = 4 * dim
    existing = told[USED]  # number of existing entries
    shift, mask, bits = told[SHIFT], told[MASK], told[BITS]
    base, last_bits, tag_bits = told[BASE], told[NUMBER], told[TAG]
    window, patience = told[WINDOW], told[PATIENCE]
    dispersion, most_weight, least, most = numbers[0], numbers[1], numbers[2], numbers[3]
    number = np.empty(1, dtype=np.float64)
    turned = number.view(np.uint8)
    for k in range(first, ends.shape[0]):
        at = int(ends[k - 1]) if k else 0
        end = int(ends[k])
        # An event starts with its version, number of fields and kind, followed by a subject or by
        # an id of 32 characters.
        if end - at < 4 or data[at] != 2:
            return k
        fields, kind = data[at + 1], data[at + 2]
        id, line, now = at + 3, -1, stamps[k]
        if kind == 14 or kind == 15:
            start = at + (4 if data[at + 3] < 0xC0 else 5)
            stop = after_text(data, at + 3, end)
            if stop < 0 or stop >= end:
                return k
            when, id = unsigned(data, stop)
            if when < 0:
                return k
            n = told[NOTED]
            noted[n, 0], noted[n, 1], noted[n, 2], noted[n, 3] = k, line, start, stop
            if kind == 15:
                if fields != 0x96 or id >= end or data[id] != 0xCB:
                    return k
                at = after_text(data, id + 9, end)  # the id of the event, then the reporter
                if at < 0 or after_text(data, at, end) != end:
                    return k
                told[NOTED], told[CREDITS] = n + 1, 1
                continue
            if fields != 0x94 or end - id != 34:
                return k
        elif end - at < 45:
            return k
        if data[id] != 0xD9 or data[id + 1] != 32:
            return k
        if data[id + 14] != 55 or not (
            data[id + 18] == 56 or data[id + 18] == 57 or data[id + 18] == 97 or data[id + 18] == 98
        ):
            return k
        high, is_hex = half_of(data, id + 2)
        if not is_hex:
            return k
        low, is_hex = half_of(data, id + 18)
        if not is_hex:
            return k
        when = 0
        if kind != 14:
            when, at = unsigned(data, id + 34)
            if when < 0:
                return k
        # Find the key in the index, or a free slot for it.
        hashed = hash_of(high, low, told[SIP_0 : SIP_3 + 1])
        slot, tag = place_of(hashed, shift), hashed & tag_bits
        while places[slot] != _FREE_PLACE:
            entry = int(places[slot])
            if entry >> bits == tag:
                i = (entry - base) & last_bits
                if cells[i, LOW] == low and cells[i, HIGH] == high:
                    line = i
                    break
            slot = (slot + 1) & mask
        if kind == 14:
            if line < 0 or cells[line, MARK] & _OWNED:
                return k
            noted[told[NOTED], 1] = line
            told[NOTED] += 1
            changed[((line + base) >> BLOCK) - (base >> BLOCK)] = 1
            cells[line, MARK] |= _OWNED
        elif kind == 1 and fields == 0x9F:
            if line >= 0 or unmatched[low & (unmatched.shape[0] - 1)]:
                return k
            if window >= 0 and told[WATERMARK] >= now + window:
                return k
            if data[at] >= 0xA0:  # the action, which is text or a number
                if data[at] < 0xC0 or data[at] == 0xD9:
                    at = after_text(data, at, end)
                    if at < 0:
                        return k
                else:
                    value, at = unsigned(data, at)
                    if value < 0:
                        return k
            else:
                value, at = unsigned(data, at)
                if value < 0:
                    return k
            if at >= end:
                return k
            value, at = unsigned(data, at)  # the index
            if value < 0 or at >= end:
                return k
            if data[at] == 0xC4:
                width, at = int(data[at + 1]), at + 2
            elif data[at] == 0xC5:
                width, at = int(data[at + 1]) * 256 + int(data[at + 2]), at + 3
            else:
                return k
            # The row, the mean and the propensity follow.
            if width != size or at + size + 18 > end:
                return k
            start, at = at, at + size
            if data[at] != 0xCB or data[at + 9] != 0xCB:
                return k
            float_at(data, at + 1, turned)
            mean = number[0]
            if not abs(mean) <= 1e300:
                return k
            value, at = unsigned(data, at + 18)  # the model
            # Next are the flag of an active decision, its source, group and overall propensity.
            if value < 0 or at + 5 > end or data[at] != 0xC3:
                return k
            at = after_source(data, at + 1, end)
            if at < 0 or at >= end:
                return k
            at = after_text(data, at, end)
            if at < 0 or at >= end or not (data[at] == 0xC0 or data[at] == 0xCB):
                return k
            at += 1 if data[at] == 0xC0 else 9
            if at >= end or not 0x90 <= data[at] < 0xA0:
                return k
            means, at = int(data[at]) - 0x90, at + 1
            plain = at + 9 * means < end
            for i in range(means):
                plain = plain and data[at + 9 * i] == 0xCB
            if not plain:
                return k
            at = after_context(data, at + 9 * means, names)
            if at != end:
                return k
            place = free[told[FREE] - 1] if told[FREE] > 0 else told[STORED]
            for i in range(size):
                row_bytes[place, i] = data[start + i]
            finite = 0
            for i in range(dim):
                finite += abs(rows[place, i]) <= _GREATEST
            if finite < dim:
                return k
            if told[BLOCKS] > 0 and not 0 <= rows[place, 0] < told[BLOCKS]:
                return k
            if told[FREE] > 0:
                told[FREE] -= 1
            else:
                told[STORED] += 1
            if told[FAMILY] == 1:
                slope = mean * (1.0 - mean)
            elif told[FAMILY] == 2:
                slope = mean
            else:
                slope = 1.0
            weight = slope / dispersion
            line = told[USED]
            told[USED] = line + 1
            told[PLACES_TAKEN] += 1
            told[DECIDED] += 1
            places[slot] = tag << bits | (line + base) & last_bits
            cells[line, HIGH] = high
            cells[line, LOW] = low
            cells[line, RECORDED] = now
            cells[line, POSITION] = positions[k]
            cells[line, AT] = when
            cells[line, MARK] = wrapped(int(crcs[k]) << 32 | _NEW_FLAGS | _PENDING)
            floats[line, VALUE] = 0.0
            cells[line, TOLD_RECORDED] = -1
            cells[line, TOLD_AT] = 0
            floats[line, WEIGHT] = weight if weight < most_weight else most_weight
            cells[line, WHERE] = place
        elif kind == 3 and fields == 0x97:
            if line < 0 or data[at] != 0xCB or at + 12 > end:
                return k
            float_at(data, at + 1, turned)
            y = number[0]
            # Accept only a reward without parts, in its first revision, followed by the reporter.
            if data[at + 9] != 0xA0 or data[at + 10] != 0 or after_text(data, at + 11, end) != end:
                return k
            where = cells[line, WHERE]
            if (
                not least <= y <= most
                or cells[line, MARK] & 255 != _PENDING
                or cells[line, MARK] & _MORE
                or cells[line, TOLD_RECORDED] != -1
                or now - cells[line, RECORDED] > patience
                or where < 0
                # Subject rewards may also be credited to the decision.
                or (cells[line, MARK] & _OWNED and told[CREDITS])
            ):
                return k
            n = told[REWARDED]
            told[REWARDED] = n + 1
            changed[((line + base) >> BLOCK) - (base >> BLOCK)] = 1
            cells[line, MARK] += _REWARDED - _PENDING
            floats[line, VALUE] = y
            cells[line, TOLD_RECORDED] = now
            cells[line, TOLD_AT] = when
            for i in range(dim):
                learned_rows[n, i] = rows[where, i]
            learned[n, 0] = y
            learned[n, 1] = floats[line, WEIGHT]
            learned[n, 2] = 1.0 if line < existing else 0.0
            times[n, 0] = cells[line, RECORDED]
            times[n, 1] = now
            cells[line, WHERE] = -2 - told[HANDLE]
            told[HANDLE] += 1
            free[told[FREE]] = where
            told[FREE] += 1
        else:
            return k
    return len(ends)
