"""A disk that can really be full: a small one, which only root can mount."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path


class SmallDisk:
    """A file system with little more space than a server needs."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="belated-disk-"))
        options = "size=160m,mode=0777"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.place)]
        self.mounted = os.geteuid() == 0 and not subprocess.run(command, check=False).returncode

    def fill(self) -> None:
        """Fill the disk completely."""
        with (self.place / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(4096)):
                pass

    def make_room(self) -> None:
        """Remove what :meth:`fill` wrote."""
        (self.place / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Remove it."""
        if self.mounted:
            subprocess.run(["umount", str(self.place)], check=True)
        self.place.rmdir()
