"""What the doctor asks of a file of SQLite."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from belated.exceptions import BelatedError
from belated.journals.sqlite.look import looking_into
from belated.service.operating import disk
from belated.service.operating.findings import Finding, ok, warning, wrong

#: Bytes that should be free beside the file.
FREE = 1 << 30
#: File systems on which the locks of SQLite, or its log, cannot be relied on.
REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "sshfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "virtiofs")
)  # fmt: skip


def examine_sqlite(path: Path) -> Iterator[Finding]:
    """Whether the file can keep what is promised; nothing in it is changed."""
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        what = f"the folder {folder} is not there, or cannot be written to"
        yield wrong("store", what, "make it, for the user of the service")
        return
    yield from _disk(folder)
    if not path.exists():
        yield warning("store", f"{str(path)!r} is not there yet", "start the service: it makes it")
        return
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        what = f"{str(path)!r} is no file that this user may read and write"
        yield wrong("store", what, "give it to the user of the service")
        return
    yield ok("store", f"{str(path)!r} is there, {path.stat().st_size >> 10} KiB")
    yield _permissions(path)
    yield from _settings(path)


def _disk(folder: Path) -> Iterator[Finding]:
    kind = file_system(folder)
    if kind in REMOTE:
        mend = "put the file on a local disk, or use PostgreSQL"
        yield wrong("local disk", f"{folder} is on {kind}: commits can be lost there", mend)
    elif kind is None:
        yield ok("local disk", f"what {folder} is on cannot be told here: see that it is local")
    else:
        yield ok("local disk", f"{folder} is on {kind}")
    seconds = disk.sync_time(folder)
    if seconds < disk.SYNC:
        mend = "choose a folder on a real disk: this may be memory, which a restart empties"
        yield warning("sync", f"a sync in {folder} takes {1e6 * seconds:.0f} µs", mend)
    else:
        yield ok("sync", f"a sync takes {1e3 * seconds:.1f} ms")
    free = shutil.disk_usage(folder).free
    if free < FREE:
        yield warning("disk room", f"{free >> 20} MiB are free", "make room")
    else:
        yield ok("disk room", f"{free >> 20} MiB are free")


def _permissions(path: Path) -> Finding:
    if os.name != "posix":
        return ok("permissions", "they are not looked at on this system")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        what = f"they are {mode:04o}: others on this machine can read decisions and rewards"
        return warning("permissions", what, f"chmod 600 {path}")
    return ok("permissions", f"they are {mode:04o}")


def _settings(path: Path) -> Iterator[Finding]:
    try:
        with looking_into(path) as connection:
            (log,) = connection.execute("PRAGMA journal_mode").fetchone()
            damage = [found for (found,) in connection.execute("PRAGMA quick_check(3)")]
    except BelatedError as error:
        yield wrong("integrity", str(error), "restore a backup, or choose another file")
        return
    if log == "wal":
        # Every connection of belated sets synchronous = FULL, and refuses a file without it.
        yield ok("write-ahead log", "it is on, and every commit is synced (synchronous = FULL)")
    else:
        mend = "open it once with belated, which turns it on"
        yield wrong("write-ahead log", f"journal_mode is {log}", mend)
    if damage == ["ok"]:
        yield ok("integrity", "quick_check finds nothing wrong")
    else:
        mend = "restore a backup; `belated journal verify` names the records that are damaged"
        yield wrong("integrity", "; ".join(damage), mend)


def file_system(folder: Path) -> str | None:
    """Return the kind of file system a folder is on; None if it cannot be told."""
    if sys.platform != "linux":
        return None
    found, longest = None, -1
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            mount = Path(before.split()[4].encode().decode("unicode_escape"))
            if folder.resolve().is_relative_to(mount) and len(mount.parts) >= longest:
                found, longest = after.split()[0], len(mount.parts)
    return found
