"""The local disk of a process, for its spool."""

from __future__ import annotations

from random import Random

from tests.simulator.faults import Faults, Killed


class Disk:
    """Bytes in a file: what was synced stays; a :class:`belated.journals.spool.file.SpoolStorage`.

    >>> faults = Faults(seed=0)
    >>> faults.stop()
    >>> disk = Disk(faults, Random(7))
    >>> disk.append(b"kept")
    >>> disk.sync()
    >>> disk.append(b", lost")
    >>> disk.lose_power()
    >>> disk.read(0, 4)
    b'kept'
    """

    def __init__(self, faults: Faults, rng: Random) -> None:
        self._faults = faults
        self._rng = rng
        self._written = b""
        self._synced = b""

    def __repr__(self) -> str:
        return "on a simulated disk"  # the same in every process

    def append(self, data: bytes) -> None:
        """Add bytes at the end; on a full disk only some of them."""
        if self._faults.strike("spool disk full"):
            self._written += data[: self._rng.randrange(len(data))]
            raise OSError("no space is left")
        self._written += data

    def sync(self) -> None:
        """What is written stays."""
        if self._faults.strike("killed before the spool was synced"):
            raise Killed
        self._synced = self._written

    def read(self, offset: int, size: int) -> bytes:
        """The bytes from an offset on."""
        return self._written[offset : offset + size]

    def truncate(self, size: int) -> None:
        """Keep the first bytes only."""
        self._written = self._written[:size]

    def close(self) -> None:
        """The file stays."""

    def lose_power(self) -> None:
        """What is not synced may be gone, or there in part."""
        lost = self._written
        if lost == self._synced:
            return
        self._faults.see("spool torn")
        self._written = self._synced
        if lost.startswith(self._synced):  # the disk had begun to write it
            kept = self._rng.randint(len(self._synced), len(lost))
            self._written = self._synced = lost[:kept]
