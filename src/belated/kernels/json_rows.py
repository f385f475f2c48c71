"""Rows of numbers, read where their JSON is: no Python object is made of a number.

Written as plain Python over arrays; only compiled it is of use. It reads what nearly all callers
send, and says so if it cannot tell for sure which float32 a number is: a decoder then does.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from belated.inputs import Row

OPEN, CLOSE, COMMA, MINUS, PLUS, ZERO, LETTER_E = (int(one) for one in b"[],-+0e")
SPACE = 32  # and what is less is no other character of JSON
POINT = ord(".") - ZERO
#: Powers of ten that are float64 numbers.
POWERS = np.array([10.0**n for n in range(23)])
#: Behind a whole number of so many digits no other one fits.
MOST_WHOLE = 10**17
#: Up to here whole numbers are float64 numbers.
EXACT = 1 << 53
#: Two roundings of a float64 number move it by less than this share of it.
DOUBT = 2.0**-51
GREATEST = 3.4028234663852886e38  # a float32


def read_rows(text: NDArray[np.uint8], width: int, numbers: Row) -> int:
    """Read an array of arrays of numbers; returns how many rows it has, 0 if that is not plain.

    A number becomes the float32 nearest to the float64 that is nearest to it, as it would by way of
    Python's own numbers.

    Args:
        text: JSON that is not malformed.
        width: how many numbers a row must have.
        numbers: are put here, row after row; it has room for half as many as the text has bytes.

    >>> numbers = np.empty(10, np.float32)
    >>> read_rows(np.frombuffer(b"[[0.5, -1], [2e1, 3]]", np.uint8), 2, numbers)
    2
    >>> numbers[:4].tolist()
    [0.5, -1.0, 20.0, 3.0]
    >>> read_rows(np.frombuffer(b'"AACAPw=="', np.uint8), 2, numbers)
    0
    """
    last = len(text) - 1
    # Nothing that is skipped below is a bracket: it never goes beyond the last one.
    if last < 3 or text[0] != OPEN or text[last] != CLOSE:
        return 0
    at = 1
    rows = count = 0
    while True:
        while text[at] <= SPACE:
            at += 1
        if text[at] != OPEN:
            return 0
        until = count + width
        while text[at] != CLOSE:
            at += 1  # behind the bracket, or a comma
            while text[at] <= SPACE:
                at += 1
            negative = text[at] == MINUS
            if negative:
                at += 1
            first, point, whole, power = at, 0, 0, 0
            while True:
                digit = int(text[at]) - ZERO
                if 0 <= digit <= 9:
                    if whole >= MOST_WHOLE:
                        return 0
                    whole = 10 * whole + digit
                elif digit == POINT:
                    point = at + 1
                else:
                    break
                at += 1
            if at == first or count == until:
                return 0
            if point:
                power = point - at
            if text[at] | 32 == LETTER_E:
                at += 1
                down = text[at] == MINUS
                if down or text[at] == PLUS:
                    at += 1
                shift = 0
                while ZERO <= text[at] <= ZERO + 9:
                    shift = min(10 * shift + int(text[at]) - ZERO, 1000)
                    at += 1
                power += -shift if down else shift
            if not -23 < power < 23:
                return 0
            number = whole * POWERS[power] if power >= 0 else whole / POWERS[-power]
            if whole > EXACT or power > 0:
                low, high = np.float32(number * (1.0 - DOUBT)), np.float32(number * (1.0 + DOUBT))
                if number > GREATEST or low != high:
                    return 0
            if negative and (whole or at > first + 1):  # -0 is a whole number, which has no sign
                number = -number
            numbers[count] = number
            count += 1
            while text[at] <= SPACE:
                at += 1
            if text[at] != COMMA and text[at] != CLOSE:
                return 0
        if count != until or at == last:
            return 0
        rows += 1
        at += 1
        while text[at] <= SPACE:
            at += 1
        if text[at] != COMMA:
            return rows if at == last else 0
        at += 1
