"""What identifies a file, whatever its name is."""

from __future__ import annotations

import os
from pathlib import Path

#: Device and number.
Inode = tuple[int, int]


def inode_of(path: Path) -> Inode | None:
    """Return what identifies the file at a path; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
