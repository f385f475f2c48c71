"""The resident memory of a process, from Linux."""

from __future__ import annotations

import os
from pathlib import Path


def resident(pid: int | str = "self") -> int:
    """Return the resident memory of a process in bytes, by default of this one."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
