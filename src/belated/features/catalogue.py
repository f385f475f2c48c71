"""A catalogue of actions: records are encoded once, and requests offer actions by id."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from itertools import repeat
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from belated.core.inputs import Row
from belated.exceptions import InvalidInput
from belated.features.columns import Columns
from belated.features.encoders import EncodedColumns
from belated.features.records import Actions, Context, Ids, as_actions, plain, shown


class Catalogue:
    """Records of actions, with their encoded values.

    Args:
        records: records of the actions, by id.
        columns: the columns that encode a record.
    """

    def __init__(self, records: Mapping[Any, Context], columns: Columns | EncodedColumns) -> None:
        #: All ids, in order.
        self.ids = as_actions(records)
        self._records = list(records.values())
        self._columns = columns
        self._places = {id: at for at, id in enumerate(self.ids)}
        self._last = self.ids, np.arange(len(self.ids))
        numbers = columns.table(self.ids, self._records)
        for id, line in zip(self.ids, numbers, strict=True):
            columns.check(line, f"action {id!r}")
        self._numbers = numbers.astype(np.float32)
        digests = map(_digest, self.ids, self._records)
        # The last digest is for actions that are not in the catalogue, which have index -1.
        self._digests = np.frombuffer(b"".join([*digests, bytes(4)]), dtype="<u4")

    def numbers(self, ids: Ids, actions: Actions) -> Row:
        """Return the encoded values of actions, one row per action.

        Args:
            ids: the ids of the actions.
            actions: the actions as in the request. If an action has a record, its fields override
                those in the catalogue.

        Raises:
            InvalidInput: an action has no record and is not in the catalogue.
        """
        if ids is self.ids:
            return self._numbers
        places = self._places_of(ids)
        records = list(actions.values()) if isinstance(actions, Mapping) else []
        filled = [at for at, record in enumerate(records) if record is not None]
        for at in np.flatnonzero(places < 0).tolist():
            if not records or records[at] is None:
                message = f"the action {shown(ids[at])} is not in the catalogue"
                raise InvalidInput(f"{message}: add it, or send its record", ids[at])
        numbers = self._numbers.take(places, axis=0)
        if filled:
            merged = [self.record(ids[at], records[at]) for at in filled]
            with np.errstate(over="ignore"):  # overflow is detected when rows are checked
                numbers[filled] = self._columns.table([ids[at] for at in filled], merged)
        return numbers

    def digests(self, actions: Actions) -> bytes:
        """Return a four-byte digest of each action's record in the catalogue."""
        return self._digests.take(self._places_of(as_actions(actions))).tobytes()

    def matches(self, actions: Actions, digests: bytes) -> bool:
        """Return whether ``digests`` were computed from the actions' current records."""
        stored = np.frombuffer(digests, dtype="<u4")
        now = np.frombuffer(self.digests(actions), dtype="<u4")
        # Zero means that the action's record was in the request, not in the catalogue.
        return bool(((stored == now) | (stored == 0)).all())

    def _places_of(self, ids: Ids) -> NDArray[np.intp]:
        # A request needs the indices twice: for its rows, and for the digests to store.
        last, places = self._last
        if ids is not last:
            places = np.fromiter(map(self._places.get, ids, repeat(-1)), np.intp, len(ids))
            self._last = ids, places
        return places

    def record(self, id: int | str, given: Any) -> Any:
        """Return the catalogue's record of an action, overridden by the fields of a request."""
        place = self._places.get(id)
        base = None if place is None else self._records[place]
        if isinstance(base, Mapping) and isinstance(given, Mapping):
            return {**base, **given}
        return base if given is None else given


def _digest(id: int | str, record: Any) -> bytes:
    try:
        data = _encode(record)
    except Exception as error:  # custom values may raise anything
        message = f"action {id!r} of the catalogue is {shown(record)}, which cannot be stored"
        raise InvalidInput(f"{message} ({error})", record) from None
    return blake2b(data, digest_size=4, person=b"belated.offers").digest()


_encode = msgspec.msgpack.Encoder(enc_hook=plain, order="deterministic").encode
