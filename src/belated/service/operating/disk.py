"""How long a disk takes to have something on stable storage."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

#: A sync that takes less, in seconds, has hardly reached a disk.
SYNC = 20e-6


def sync_time(folder: Path) -> float:
    """Return the least time that a few syncs in a folder took, in seconds."""
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        times = []
        for _ in range(5):
            file.write(b"x" * 4096)
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    return min(times)
