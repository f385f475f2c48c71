"""An examination of all that the promises of the service rest on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from belated.exceptions import BelatedError, InvalidConfig
from belated.journals import PostgresStore, SQLiteStore
from belated.journals.postgres.rights import Role
from belated.service.operating import disk
from belated.service.operating.config import Config, read_config
from belated.service.operating.doctor_bandits import examine_bandits
from belated.service.operating.doctor_postgres import examine_postgres
from belated.service.operating.doctor_sqlite import examine_sqlite
from belated.service.operating.findings import Finding, ok, warning, wrong
from belated.service.serving.spools import SpoolFolder, Unreadable

#: Files that a process may have open at least: a connection is one.
FILES = 4096
#: Checks of a store without which nothing beyond can be asked.
STORED = ("store", "rights", "tables", "integrity")

#: What may be wrong with a spool that a process has left, and how to mend it.
UNREADABLE: dict[Unreadable, tuple[str, str]] = {
    "not_permitted": ("may not be read by this user", "chown it to the user of the service"),
    "unreadable": ("could not be read", "see whether the disk is there, and intact"),
    "damaged": ("is damaged, or no spool of this bandit", "the log of a service says where"),
}


def examine(file: str | Path, role: Role | None = None) -> list[Finding]:
    """All findings; the store is asked, and nothing in it is changed.

    Args:
        file: the configuration.
        role: the process whose rights are looked at; by default that of ``belated serve``, which
            is a learner too if the file says ``learn = true``.
    """
    try:
        config = read_config(file)
    except InvalidConfig as error:
        return [wrong("config", one, "correct the file") for one in error.mistakes]
    return [
        ok("config", f"it names {', '.join(one.name for one in config.bandits)}"),
        *_store(config, role),
        *_spool(config),
        *_process(),
    ]


def _store(config: Config, role: Role | None) -> Iterator[Finding]:
    store, found = config.store, []
    if isinstance(store, PostgresStore):
        serves: list[Role] = ["decider", "learner"] if config.server.learn else ["decider"]
        found = list(examine_postgres(store, serves if role is None else [role]))
    if isinstance(store, SQLiteStore):
        found = list(examine_sqlite(store.path))
    yield from found
    if any(one.check in STORED and one.state != "ok" for one in found):
        return  # then nothing beyond can be asked
    yield from examine_bandits(store, config.bandits)


def _spool(config: Config) -> Iterator[Finding]:
    folder = config.server.spool
    if folder is None:
        if config.store.name == "sqlite":
            yield ok("spool", "there is none, and a store on the same disk hardly needs one")
            return
        mend = "set server.spool_dir to a folder on a local disk"
        what = "there is none: requests fail while the store is unavailable"
        yield warning("spool", what, mend)
        return
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        seconds = disk.sync_time(folder.path)
    except OSError as error:
        mend = "give the user of the service a folder it may write to, on a local disk"
        yield wrong("spool", f"{folder.path} cannot be written to: {error.strerror}", mend)
        return
    if seconds < disk.SYNC:
        mend = "choose a folder on a real disk: this may be memory, which a restart empties"
        yield warning("spool", f"a sync in {folder.path} takes {1e6 * seconds:.0f} µs", mend)
    else:
        yield ok("spool", f"{folder.path} can be written to, a sync takes {1e3 * seconds:.1f} ms")
    free, needed = shutil.disk_usage(folder.path).free, folder.limit * len(config.bandits)
    if free < needed:
        what = f"{free >> 20} MiB are free, and the spools of one process may grow to"
        mend = "make room, or set server.spool_max_bytes lower"
        yield warning("spool room", f"{what} {needed >> 20} MiB", mend)
    else:
        yield ok("spool room", f"{free >> 20} MiB are free")
    for one in config.bandits:
        yield _left(folder, one.name)


def _left(folder: SpoolFolder, bandit: str) -> Finding:
    check = f"spool of {bandit}"
    try:
        left = folder.left(bandit)
    except (BelatedError, OSError) as error:
        return wrong(check, str(error), "see who owns the folder and the files")
    for why, (what, mend) in UNREADABLE.items():
        if named := ", ".join(str(path) for path, found in left.items() if found == why):
            return wrong(check, f"{named}: {what}", mend)
    if left:
        events = sum(found for found in left.values() if isinstance(found, int))
        what = f"{events} events of processes that have died wait in {len(left)} files"
        return warning(check, what, "start a service with this folder: it hands them over")
    return ok(check, "nothing was left there by processes that have died")


def _process() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # not a system of the POSIX kind
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        what = f"{soft} may be open at once, and every connection is one"
        yield warning("open files", what, f"raise the limit to {FILES} (ulimit -n, LimitNOFILE)")
    else:
        yield ok("open files", f"{soft} may be open at once")
