"""What all events share: they are values, and their bytes decide equality."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import numpy as np

from belated.times import as_datetime

_LITTLE = np.dtype("<f4")


def _row_to_bytes(row: Any) -> bytes:
    if row.dtype is not _LITTLE or row.ndim != 1:  # a big-endian machine, or no row
        if row.dtype != np.float32 or row.ndim != 1:
            raise TypeError(f"the row of a decision is a float32 vector, not {row!r}")
        row = row.astype(_LITTLE)
    data: bytes = row.tobytes()
    return data


encoder = msgspec.msgpack.Encoder(enc_hook=_row_to_bytes)


class EventBase(
    msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True, eq=False
):
    """An event is its bytes: these decide equality, so that -0.0 and NaN are what they are."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and encoder.encode(self) == encoder.encode(other)

    def __ne__(self, other: object) -> bool:  # msgspec has one of its own
        return not self == other

    def __hash__(self) -> int:
        return hash(encoder.encode(self))


class TimedEvent(EventBase, frozen=True):
    """An event that somebody told, with the time at which it happened."""

    @property
    def at(self) -> datetime:
        """When it happened, in UTC."""
        return as_datetime(self.at_us)  # type: ignore[attr-defined]
