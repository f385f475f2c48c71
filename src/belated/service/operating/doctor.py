"""An examination of all that the promises of the service rest on."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from belated.core.times import as_datetime
from belated.exceptions import BelatedError, InvalidConfig, InvalidInput, MissingExtra
from belated.fold.published import PublishedModel
from belated.journals import PostgresStore, SQLiteStore, Store, open_store
from belated.journals.addresses import split_address
from belated.journals.postgres.queries import VERSION
from belated.journals.postgres.rights import Role, rights_of
from belated.journals.sqlite.store import open_read_only
from belated.journals.store import StoredBandit
from belated.service.operating.config import Config, read_config
from belated.service.operating.feature_changes import feature_change
from belated.service.serving.definition import Definition
from belated.service.serving.served_bandits import MAX_MODEL_AGE
from belated.service.serving.spools import SpoolFolder, Unreadable

if TYPE_CHECKING:  # it needs psycopg
    from belated.journals.postgres.session import PostgresLook

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
#: A sync that takes less, in seconds, has hardly reached a disk.
SYNC = 20e-6
#: Seconds by which clocks may differ.
CLOCKS = 1.0
#: Each setting of the server with the values under which acknowledged events can be lost.
UNSAFE = (
    ("fsync", ("off",)),
    ("full_page_writes", ("off",)),
    ("synchronous_commit", ("off", "local")),
)
#: Values of ``synchronous_commit`` under which a commit is on the disk of a standby too.
WAITING = ("on", "remote_apply")
#: Bytes that should be free beside the file.
FREE = 1 << 30
#: File systems on which the locks of SQLite, or its log, cannot be relied on.
REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "sshfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "virtiofs")
)  # fmt: skip

State = Literal["ok", "warning", "wrong"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at.

    Attributes:
        check: what was looked at.
        state: ok; warning: it works, but not as it should; wrong: a promise does not hold.
        what: was found.
        mend: how to, where it is not ok.
    """

    check: str
    state: State
    what: str
    mend: str = ""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", what)


def wrong(check: str, what: str, mend: str) -> Finding:
    """A promise does not hold."""
    return Finding(check, "wrong", what, mend)


def warning(check: str, what: str, mend: str) -> Finding:
    """It works, but not as it should."""
    return Finding(check, "warning", what, mend)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Each as a line for people.

    >>> print(*lines([wrong("fsync", "it is off", "set fsync = on")]))
    wrong    fsync: it is off: set fsync = on
    """
    for one in findings:
        yield f"{one.state:8} {': '.join(filter(None, [one.check, one.what, one.mend]))}"


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
    serves: list[Role] = ["decider", "learner"] if config.server.learn else ["decider"]
    stored = list(_store(config.store, serves if role is None else [role]))
    if not _stops(stored):
        stored += examine_bandits(config.store, config.bandits)
    return [
        ok("config", f"it names {', '.join(one.name for one in config.bandits)}"),
        *_secrets(config),
        *stored,
        *_spool(config),
        *_process(),
    ]


def examine_address(address: str, role: Role | None = None) -> list[Finding]:
    """Return all findings about the journals at an address; nothing is changed.

    Args:
        address: of a store, or of one of its bandits.
        role: the process whose rights are looked at; by default all that a service does.
    """
    place, name = split_address(address)
    store = open_store(place)
    findings = list(_store(store, ["decider", "learner"] if role is None else [role]))
    if not _stops(findings):
        for one in store.describe():
            if name == one.name or place == address:
                findings.append(ok(f"journal of {one.name}", f"partitions: {one.partitions}"))
                findings.append(_stamps(store, one.name))
    return [*findings, *_process()]


def refusals(config: Config) -> list[Finding]:
    """Return why a service could not start, as far as the store can be read.

    Raises:
        BelatedError: it cannot.
    """
    findings = list(_secrets(config))
    stored = {one.name: one for one in config.store.describe()}
    for one in config.bandits:
        if (found := stored.get(one.name)) is not None:
            findings.append(_journal(one, found))
            if one.features is not None and found.identity is not None:
                findings.append(_features(config.store, one, found.identity))
    return [finding for finding in findings if finding.state == "wrong"]


def _store(store: Store, roles: Sequence[Role]) -> Iterator[Finding]:
    if isinstance(store, PostgresStore):
        yield from examine_postgres(store, roles)
    if isinstance(store, SQLiteStore):
        yield from examine_sqlite(store.path)


def _stops(findings: Sequence[Finding]) -> bool:
    """Whether nothing beyond the store can be asked."""
    return any(one.check in STORED and one.state != "ok" for one in findings)


def _secrets(config: Config) -> Iterator[Finding]:
    try:
        config.token_keys()
    except InvalidInput as error:
        yield wrong("tokens", str(error), "")


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
        yield _sync("spool", folder.path)
    except OSError as error:
        mend = "give the user of the service a folder it may write to, on a local disk"
        yield wrong("spool", f"{folder.path} cannot be written to: {error.strerror}", mend)
        return
    needed = folder.limit * len(config.bandits)
    what = f", and the spools of one process may grow to {needed >> 20} MiB"
    mend = "make room, or set server.spool_max_bytes lower"
    yield _room("spool room", folder.path, needed, what, mend)
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


# --- disks ---------------------------------------------------------------------------------------


def _sync(check: str, folder: Path) -> Finding:
    seconds = sync_time(folder)
    if seconds < SYNC:
        mend = "choose a folder on a real disk: this may be memory, which a restart empties"
        return warning(check, f"a sync in {folder} takes {1e6 * seconds:.0f} µs", mend)
    return ok(check, f"{folder} can be written to, a sync takes {1e3 * seconds:.1f} ms")


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


def _room(
    check: str, folder: Path, needed: int, what: str = "", mend: str = "make room"
) -> Finding:
    free = shutil.disk_usage(folder).free
    if free < needed:
        return warning(check, f"{free >> 20} MiB are free{what}", mend)
    return ok(check, f"{free >> 20} MiB are free")


# --- bandits, wherever they are stored -----------------------------------------------------------


def examine_bandits(store: Store, bandits: Sequence[Definition]) -> Iterator[Finding]:
    """Whether each has a journal, a leader and a fresh model."""
    try:
        stored = {one.name: one for one in store.describe()}
    except BelatedError as error:
        yield wrong("store", str(error), "correct store.address")
        return
    for one in bandits:
        found = stored.get(one.name)
        if found is None:
            mend = "start the service: it makes it"
            yield warning(f"journal of {one.name}", "there is none yet", mend)
        else:
            yield _journal(one, found)
            if one.features is not None and found.identity is not None:
                yield _features(store, one, found.identity)
            yield _stamps(store, one.name)
            yield from _learner(store, one.name)


def _journal(made: Definition, found: StoredBandit) -> Finding:
    check = f"journal of {made.name}"
    if made.partitions not in (None, found.partitions):
        what = f"partitions: {found.partitions}; the file says {made.partitions}"
        mend = f"write partitions = {found.partitions}, or move it with `belated journal import`"
        return wrong(check, what, mend)
    return ok(check, f"partitions: {found.partitions}")


def _features(store: Store, made: Definition, identity: Mapping[str, str]) -> Finding:
    check = f"features of {made.name}"
    try:
        with store.journal(made.name) as journal:
            plan = feature_change(journal, identity, made)
    except BelatedError as error:
        return wrong(check, str(error), "see that the store can be used")
    if plan.refused:
        return wrong(check, "; ".join(plan.changes), plan.refused)
    if plan.changes:
        mend = "`belated features diff` says more"
        what = f"{plan.decisions:,} decisions are encoded again, in about {plan.seconds:.1f} s"
        return warning(check, f"{'; '.join(plan.changes)}: about {what}", mend)
    return ok(check, "they are those of the journal")


def _stamps(store: Store, name: str) -> Finding:
    """Whether journal time goes on: stamps never decrease, so that one of the future stops it."""
    check = f"stamps of {name}"
    try:
        with store.journal(name) as journal:
            last = max(map(journal.last_stamp, range(journal.partitions)))
            ahead = (last - journal.now()) / 1e6
    except BelatedError as error:
        return wrong(check, str(error), "see that the store can be used")
    if ahead > CLOCKS:
        what = f"the last is {ahead:.0f} s ahead of the clock that stamps, which has jumped"
        until = f"{as_datetime(last):%Y-%m-%d %H:%M:%S} UTC"
        return wrong(check, f"{what}: no window ends before {until}", "have the clock set by NTP")
    return ok(check, "none is ahead of the clock")


def _learner(store: Store, name: str) -> Iterator[Finding]:
    try:
        coordination = store.coordination(name)
        try:
            leader, published = coordination.leader(), coordination.published()
        finally:
            coordination.close()
    except BelatedError as error:
        yield wrong(f"leader of {name}", str(error), "see that the store can be used")
        return
    if leader is None:
        mend = "start `belated learn`, or a service with learn = true; its log says why not"
        yield warning(f"leader of {name}", "nobody learns", mend)
    else:
        lease = f"its lease ends in {leader.seconds:.0f} s unless it is renewed"
        yield ok(f"leader of {name}", f"{leader.holder}; {lease}")
    yield _model(f"model of {name}", None if published is None else published[1])


def _model(check: str, data: bytes | None) -> Finding:
    if data is None:
        return warning(check, "there is none yet", "see that a learner runs")
    try:
        age = time.time() - PublishedModel.read(data).at / 1e6
    except BelatedError as error:
        return wrong(check, str(error), "start a learner of this release: it makes another")
    if age > MAX_MODEL_AGE:
        mend = "see that a learner runs, and whether the mode is freeze"
        return warning(check, f"it is {age / 60:.0f} minutes old", mend)
    return ok(check, f"it is {max(0.0, age):.1f} s old")


# --- PostgreSQL ----------------------------------------------------------------------------------


def examine_postgres(store: PostgresStore, roles: Collection[Role]) -> Iterator[Finding]:
    """Whether the database can keep what is promised, and lets processes of some kinds do it."""
    try:
        look = store.look()
    except BelatedError as error:
        mend = "" if isinstance(error, MissingExtra) else "start it, or correct store.address"
        yield wrong("store", str(error), mend)
        return
    try:
        yield ok("store", f"{look.place} answers")
        yield from _settings(look)
        yield _failover(look)
        yield _server_clock(look)
        rights = _rights(look, roles)
        yield rights
        if rights.state == "ok":  # else the tables cannot be looked at
            yield _tables(look)
    except BelatedError as error:
        yield wrong("store", str(error), "see the log of the server")
    finally:
        look.close()


def _settings(look: PostgresLook) -> Iterator[Finding]:
    version, standby, *values = look.run_query("settings")[0]
    if version < 140_000:
        yield wrong("version", f"PostgreSQL {version // 10_000}", "14 or later is needed")
    else:
        yield ok("version", f"PostgreSQL {version // 10_000}")
    if standby:
        what = "it is a standby, which lags behind and takes no events"
        yield wrong("primary", what, "name the primary in store.address")
    else:
        yield ok("primary", "it takes events")
    for (name, unsafe), value in zip(UNSAFE, values, strict=True):
        if value in unsafe:
            what = f"it is {value}: acknowledged events can be lost"
            yield wrong(name, what, f"set {name} = on, and restart or reload the server")
        else:
            yield ok(name, f"it is {value}")


def _failover(look: PostgresLook) -> Finding:
    """Whether a standby that takes over has all that was acknowledged."""
    ((standbys, names, commit),) = look.run_query("standbys")
    if not standbys:
        return ok("failover", "no standby is connected")
    connected = "a standby is" if standbys == 1 else f"{standbys} standbys are"
    if not names:
        what = f"{connected} connected, and no commit waits for any: a failover can lose events"
        mend = "set synchronous_standby_names, or accept that learners then start anew"
        return warning("failover", what, mend)
    if commit not in WAITING:
        what = f"{connected} connected, and synchronous_commit is {commit}: a failover can lose"
        return warning("failover", f"{what} events", "set synchronous_commit = on")
    return ok("failover", f"{connected} connected, and a commit waits for {names}")


def _server_clock(look: PostgresLook) -> Finding:
    before = time.time_ns() // 1000
    ((theirs,),) = look.run_query("clock")
    ours = (before + time.time_ns() // 1000) // 2
    apart = abs(theirs - ours) / 1e6  # times are for people, stamps are the server's
    if apart > CLOCKS:
        what = f"it is {apart:.1f} s apart from the server's: times in records will not agree"
        return warning("clock", what, "have both set by NTP")
    return ok("clock", f"it is {1e3 * apart:.0f} ms apart from the server's")


def _tables(look: PostgresLook) -> Finding:
    if look.run_query("has_tables") != [(True,)]:
        return wrong("tables", "there are none", 'run `belated schema | psql "$DATABASE_URL"`')
    ((version, oldest),) = look.run_query("version")
    if (version or 0) < VERSION:
        mend = f'run `belated schema --from {version or 0} | psql "$DATABASE_URL"`'
        return wrong("tables", f"they have version {version}, and {VERSION} is needed", mend)
    if oldest > VERSION:
        return wrong("tables", f"they have version {version}, which is newer", "upgrade belated")
    return ok("tables", f"they have version {version}")


def _rights(look: PostgresLook, roles: Collection[Role]) -> Finding:
    tables, privileges = zip(*rights_of(roles), strict=True)
    missing = look.run_query("missing_rights", tables=list(tables), privileges=list(privileges))
    who = " and ".join(roles)
    if not missing:
        return ok("rights", f"the role may do what a {who} must")
    named = ", ".join(f"{right} on {table}" for table, right, _ in missing[:5])
    grants = (f"GRANT {right} ON belated.{table} TO {role}" for table, right, role in missing)
    mend = "; ".join([f"GRANT USAGE ON SCHEMA belated TO {missing[0][2]}", *grants])
    return wrong("rights", f"the role lacks {len(missing)} that a {who} needs: {named}", mend)


# --- SQLite --------------------------------------------------------------------------------------


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
    yield from _sqlite_settings(path)


def _disk(folder: Path) -> Iterator[Finding]:
    kind = file_system(folder)
    if kind in REMOTE:
        mend = "put the file on a local disk, or use PostgreSQL"
        yield wrong("local disk", f"{folder} is on {kind}: commits can be lost there", mend)
    elif kind is None:
        yield ok("local disk", f"what {folder} is on cannot be told here: see that it is local")
    else:
        yield ok("local disk", f"{folder} is on {kind}")
    yield _sync("sync", folder)
    yield _room("disk room", folder, FREE)


def _permissions(path: Path) -> Finding:
    if os.name != "posix":
        return ok("permissions", "they are not looked at on this system")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        what = f"they are {mode:04o}: others on this machine can read decisions and rewards"
        return warning("permissions", what, f"chmod 600 {path}")
    return ok("permissions", f"they are {mode:04o}")


def _sqlite_settings(path: Path) -> Iterator[Finding]:
    try:
        with open_read_only(path) as connection:
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
