"""``belated doctor``: check everything that the service's guarantees depend on."""

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

if TYPE_CHECKING:  # requires psycopg
    from belated.journals.postgres.session import PostgresInspection

#: Recommended minimum limit on open files per process. Each connection counts as one file.
FILES = 4096
#: Store checks that must succeed before the bandits in the store can be checked.
STORED = ("store", "rights", "tables", "integrity")

#: Descriptions and remedies for spools of stopped processes that cannot be delivered, by reason.
UNREADABLE: dict[Unreadable, tuple[str, str]] = {
    "not_permitted": ("not readable for this user", "chown it to the user of the service"),
    "unreadable": ("cannot be read", "check that the disk is mounted and intact"),
    "damaged": ("damaged, or not a spool of this bandit", "see the log of a service for details"),
}
#: If a sync takes less time than this, in seconds, the data has probably not reached a disk.
SYNC = 20e-6
#: Maximum difference between clocks, in seconds.
CLOCKS = 1.0
#: PostgreSQL settings, with the values that can cause the loss of acknowledged events.
UNSAFE = (
    ("fsync", ("off",)),
    ("full_page_writes", ("off",)),
    ("synchronous_commit", ("off", "local")),
)
#: Values of ``synchronous_commit`` that make commits wait for the disk of a standby.
WAITING = ("on", "remote_apply")
#: Minimum free disk space for a SQLite file, in bytes.
FREE = 1 << 30
#: File systems on which SQLite's locks or write-ahead log are unreliable.
REMOTE = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "sshfs",
     "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.rclone", "virtiofs")
)  # fmt: skip

State = Literal["ok", "warning", "wrong"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check.

    Attributes:
        check: Name of the check.
        state: ``ok``; ``warning`` if everything works but something should be improved; ``wrong``
            if a guarantee does not hold.
        what: Description of what was found.
        mend: What to do about it if the state is not ``ok``.
    """

    check: str
    state: State
    what: str
    mend: str = ""


def ok(check: str, what: str) -> Finding:
    """Return a finding for a check that succeeded."""
    return Finding(check, "ok", what)


def wrong(check: str, what: str, mend: str) -> Finding:
    """Return a finding for a guarantee that does not hold."""
    return Finding(check, "wrong", what, mend)


def warning(check: str, what: str, mend: str) -> Finding:
    """Return a finding for something that works but should be improved."""
    return Finding(check, "warning", what, mend)


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield findings as lines of text.

    >>> print(*lines([wrong("fsync", "off", "set fsync = on")]))
    wrong    fsync: off: set fsync = on
    """
    for finding in findings:
        text = ": ".join(filter(None, [finding.check, finding.what, finding.mend]))
        yield f"{finding.state:8} {text}"


def examine(file: str | Path, role: Role | None = None) -> list[Finding]:
    """Check a configuration, its store and this machine, without writing to the store.

    Args:
        file: Configuration file.
        role: Role whose permissions are checked. By default, that of ``belated serve``, which is
            also a learner if the configuration contains ``learn = true``.
    """
    try:
        config = read_config(file)
    except InvalidConfig as error:
        return [wrong("config", mistake, "correct the file") for mistake in error.mistakes]
    served: list[Role] = ["decider", "learner"] if config.server.learn else ["decider"]
    findings = list(_store(config.store, served if role is None else [role]))
    if not _stops(findings):
        findings += examine_bandits(config.store, config.bandits)
    names = ", ".join(definition.name for definition in config.bandits)
    return [
        ok("config", f"bandits: {names}"),
        *_secrets(config),
        *findings,
        *_spool(config),
        *_process(),
    ]


def examine_address(address: str, role: Role | None = None) -> list[Finding]:
    """Check the journals at an address, without writing to the store.

    Args:
        address: Address of a store, or of a bandit in a store.
        role: Role whose permissions are checked; by default, both decider and learner.
    """
    place, name = split_address(address)
    store = open_store(place)
    findings = list(_store(store, ["decider", "learner"] if role is None else [role]))
    if not _stops(findings):
        for stored in store.describe():
            if name == stored.name or place == address:
                findings.append(ok(f"journal of {stored.name}", f"partitions: {stored.partitions}"))
                findings.append(_stamps(store, stored.name))
    return [*findings, *_process()]


def refusals(config: Config) -> list[Finding]:
    """Return the findings that would prevent a service from starting.

    Raises:
        BelatedError: the store cannot be read.
    """
    findings = list(_secrets(config))
    stored_by_name = {stored.name: stored for stored in config.store.describe()}
    for definition in config.bandits:
        if (stored := stored_by_name.get(definition.name)) is not None:
            findings.append(_journal(definition, stored))
            if stored.identity is not None:
                findings.append(_features(config.store, definition, stored.identity))
    return [finding for finding in findings if finding.state == "wrong"]


def _store(store: Store, roles: Sequence[Role]) -> Iterator[Finding]:
    if isinstance(store, PostgresStore):
        yield from examine_postgres(store, roles)
    if isinstance(store, SQLiteStore):
        yield from examine_sqlite(store.path)


def _stops(findings: Sequence[Finding]) -> bool:
    """Return whether the store is unusable, so that its bandits cannot be checked."""
    return any(finding.check in STORED and finding.state != "ok" for finding in findings)


def _secrets(config: Config) -> Iterator[Finding]:
    try:
        config.token_keys()
    except InvalidInput as error:
        yield wrong("tokens", str(error), "")


def _spool(config: Config) -> Iterator[Finding]:
    folder = config.server.spool
    if folder is None:
        if config.store.name == "sqlite":
            yield ok("spool", "none, which is fine for a store on the same disk")
            return
        mend = "set server.spool_dir to a folder on a local disk"
        finding = "none: requests fail while the store is unavailable"
        yield warning("spool", finding, mend)
        return
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        yield _sync("spool", folder.path)
    except OSError as error:
        mend = "choose a folder on a local disk that the user of the service can write to"
        yield wrong("spool", f"cannot write to {folder.path}: {error.strerror}", mend)
        return
    needed = folder.limit * len(config.bandits)
    finding = f", but the spools of one process may grow to {needed >> 20} MiB"
    mend = "free disk space, or reduce server.spool_max_bytes"
    yield _room("spool room", folder.path, needed, finding, mend)
    for definition in config.bandits:
        yield _left(folder, definition.name)


def _left(folder: SpoolFolder, bandit: str) -> Finding:
    check = f"spool of {bandit}"
    try:
        leftovers = folder.left(bandit)
    except (BelatedError, OSError) as error:
        return wrong(check, str(error), "check the owner of the folder and of its files")
    for reason, (finding, mend) in UNREADABLE.items():
        if paths := ", ".join(str(path) for path, events in leftovers.items() if events == reason):
            return wrong(check, f"{paths}: {finding}", mend)
    if leftovers:
        count = sum(events for events in leftovers.values() if isinstance(events, int))
        finding = f"{count} undelivered events of stopped processes in {len(leftovers)} files"
        return warning(check, finding, "start a service with this folder, which delivers them")
    return ok(check, "no undelivered events of stopped processes")


def _process() -> Iterator[Finding]:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        finding = f"the limit is {soft}, and every connection uses one file"
        yield warning("open files", finding, f"raise the limit to {FILES} (ulimit -n, LimitNOFILE)")
    else:
        yield ok("open files", f"the limit is {soft}")


# --- disks ---------------------------------------------------------------------------------------


def _sync(check: str, folder: Path) -> Finding:
    seconds = sync_time(folder)
    if seconds < SYNC:
        mend = "choose a folder on a real disk: this may be a RAM disk, which a restart empties"
        return warning(check, f"a sync in {folder} takes only {1e6 * seconds:.0f} µs", mend)
    return ok(check, f"{folder} is writable; a sync takes {1e3 * seconds:.1f} ms")


def sync_time(folder: Path) -> float:
    """Time a few syncs in a folder and return the shortest duration, in seconds."""
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
    check: str, folder: Path, needed: int, what: str = "", mend: str = "free disk space"
) -> Finding:
    free = shutil.disk_usage(folder).free
    if free < needed:
        return warning(check, f"{free >> 20} MiB are free{what}", mend)
    return ok(check, f"{free >> 20} MiB are free")


# --- bandits, in any store -----------------------------------------------------------------------


def examine_bandits(store: Store, bandits: Sequence[Definition]) -> Iterator[Finding]:
    """Check that each bandit has a journal, a leader and a recent model."""
    try:
        stored_by_name = {stored.name: stored for stored in store.describe()}
    except BelatedError as error:
        yield wrong("store", str(error), "correct store.address")
        return
    for definition in bandits:
        stored = stored_by_name.get(definition.name)
        if stored is None:
            mend = "start the service, which creates it"
            yield warning(f"journal of {definition.name}", "it does not exist yet", mend)
        else:
            yield _journal(definition, stored)
            if stored.identity is not None:
                yield _features(store, definition, stored.identity)
            yield _stamps(store, definition.name)
            yield from _learner(store, definition.name)


def _journal(definition: Definition, stored: StoredBandit) -> Finding:
    check = f"journal of {definition.name}"
    if definition.partitions not in (None, stored.partitions):
        finding = (
            f"partitions: {stored.partitions}, but {definition.partitions} in the configuration"
        )
        mend = f"set partitions = {stored.partitions}, or move it with `belated journal import`"
        return wrong(check, finding, mend)
    return ok(check, f"partitions: {stored.partitions}")


def _features(store: Store, definition: Definition, identity: Mapping[str, str]) -> Finding:
    check = f"features of {definition.name}"
    try:
        with store.journal(definition.name) as journal:
            change = feature_change(journal, identity, definition)
    except BelatedError as error:
        return wrong(check, str(error), "check the store")
    if change.refused:
        return wrong(check, "; ".join(change.changes), change.refused)
    if change.changes:
        mend = "run `belated features diff` for details"
        finding = (
            f"{change.decisions:,} decisions are encoded again, in about {change.seconds:.1f} s"
        )
        return warning(check, f"{'; '.join(change.changes)}: about {finding}", mend)
    return ok(check, "they match the journal")


def _stamps(store: Store, name: str) -> Finding:
    """Check that no timestamp is in the future.

    Timestamps never decrease, so a future timestamp would stop journal time until it is reached.
    """
    check = f"stamps of {name}"
    try:
        with store.journal(name) as journal:
            last = max(map(journal.last_stamp, range(journal.partitions)))
            ahead = (last - journal.now()) / 1e6
    except BelatedError as error:
        return wrong(check, str(error), "check the store")
    if ahead > CLOCKS:
        finding = (
            f"the last timestamp is {ahead:.0f} s ahead of the store's clock, which has jumped"
        )
        until = f"{as_datetime(last):%Y-%m-%d %H:%M:%S} UTC"
        return wrong(
            check, f"{finding}: no window ends before {until}", "synchronize clocks with NTP"
        )
    return ok(check, "no timestamp is ahead of the clock")


def _learner(store: Store, name: str) -> Iterator[Finding]:
    try:
        coordination = store.coordination(name)
        try:
            leader, published = coordination.leader(), coordination.published()
        finally:
            coordination.close()
    except BelatedError as error:
        yield wrong(f"leader of {name}", str(error), "check the store")
        return
    if leader is None:
        mend = (
            "start `belated learn`, or a service with learn = true; if it is running, see its log"
        )
        yield warning(f"leader of {name}", "no learner is active", mend)
    else:
        lease = f"its lease expires in {leader.seconds:.0f} s unless renewed"
        yield ok(f"leader of {name}", f"{leader.holder}; {lease}")
    yield _model(f"model of {name}", None if published is None else published[1])


def _model(check: str, data: bytes | None) -> Finding:
    if data is None:
        return warning(check, "no model has been published yet", "check that a learner is running")
    try:
        age = time.time() - PublishedModel.read(data).at / 1e6
    except BelatedError as error:
        mend = "start a learner of this release, which publishes a new model"
        return wrong(check, str(error), mend)
    if age > MAX_MODEL_AGE:
        mend = "check that a learner is running, and that the mode is not freeze"
        return warning(check, f"it is {age / 60:.0f} minutes old", mend)
    return ok(check, f"it is {max(0.0, age):.1f} s old")


# --- PostgreSQL ----------------------------------------------------------------------------------


def examine_postgres(store: PostgresStore, roles: Collection[Role]) -> Iterator[Finding]:
    """Check that a PostgreSQL database is safe, and that the roles have their permissions.

    Args:
        store: Store in the database.
        roles: Roles whose permissions are checked.
    """
    try:
        inspection = store.inspect()
    except BelatedError as error:
        mend = "start the database, or correct store.address"
        yield wrong("store", str(error), "" if isinstance(error, MissingExtra) else mend)
        return
    try:
        yield ok("store", f"{inspection.place} responds")
        yield from _settings(inspection)
        yield _failover(inspection)
        yield _server_clock(inspection)
        rights = _rights(inspection, roles)
        yield rights
        if rights.state == "ok":  # otherwise the tables cannot be read
            yield _tables(inspection)
    except BelatedError as error:
        yield wrong("store", str(error), "see the log of the database server")
    finally:
        inspection.close()


def _settings(inspection: PostgresInspection) -> Iterator[Finding]:
    version, standby, *values = inspection.run_query("settings")[0]
    if version < 140_000:
        yield wrong("version", f"PostgreSQL {version // 10_000}", "upgrade to 14 or later")
    else:
        yield ok("version", f"PostgreSQL {version // 10_000}")
    if standby:
        finding = "this is a standby, which lags behind and accepts no events"
        yield wrong("primary", finding, "set store.address to the primary")
    else:
        yield ok("primary", "it accepts events")
    for (name, unsafe), value in zip(UNSAFE, values, strict=True):
        if value in unsafe:
            finding = f"it is {value}: acknowledged events can be lost"
            yield wrong(name, finding, f"set {name} = on, and restart or reload the server")
        else:
            yield ok(name, f"it is {value}")


def _failover(inspection: PostgresInspection) -> Finding:
    """Check that a standby would have all acknowledged events after a failover."""
    ((standbys, names, commit),) = inspection.run_query("standbys")
    if not standbys:
        return ok("failover", "no standby is connected")
    connected = "a standby is" if standbys == 1 else f"{standbys} standbys are"
    if not names:
        finding = (
            f"{connected} connected, but commits do not wait for it: a failover can lose events"
        )
        mend = "set synchronous_standby_names, or accept that learners then rebuild their state"
        return warning("failover", finding, mend)
    if commit not in WAITING:
        finding = f"{connected} connected, but synchronous_commit is {commit}: a failover can lose"
        return warning("failover", f"{finding} events", "set synchronous_commit = on")
    return ok("failover", f"{connected} connected, and commits wait for {names}")


def _server_clock(inspection: PostgresInspection) -> Finding:
    before = time.time_ns() // 1000
    ((server_us,),) = inspection.run_query("clock")
    local_us = (before + time.time_ns() // 1000) // 2
    difference = abs(server_us - local_us) / 1e6
    if difference > CLOCKS:
        finding = (
            f"it differs from the server's by {difference:.1f} s: times in records may not match"
        )
        return warning("clock", finding, "synchronize both clocks with NTP")
    return ok("clock", f"it differs from the server's by {1e3 * difference:.0f} ms")


def _tables(inspection: PostgresInspection) -> Finding:
    if inspection.run_query("has_tables") != [(True,)]:
        return wrong("tables", "they do not exist", 'run `belated schema | psql "$DATABASE_URL"`')
    ((version, oldest),) = inspection.run_query("version")
    if (version or 0) < VERSION:
        mend = f'run `belated schema --from {version or 0} | psql "$DATABASE_URL"`'
        return wrong("tables", f"they have version {version}, but {VERSION} is required", mend)
    if oldest > VERSION:
        finding = f"they have version {version}, which is newer than this release supports"
        return wrong("tables", finding, "upgrade belated")
    return ok("tables", f"they have version {version}")


def _rights(inspection: PostgresInspection, roles: Collection[Role]) -> Finding:
    tables, privileges = zip(*rights_of(roles), strict=True)
    missing = inspection.run_query(
        "missing_rights", tables=list(tables), privileges=list(privileges)
    )
    kinds = " and ".join(roles)
    if not missing:
        return ok("rights", f"the role has all privileges that a {kinds} needs")
    listed = ", ".join(f"{right} on {table}" for table, right, _ in missing[:5])
    grants = (f"GRANT {right} ON belated.{table} TO {role}" for table, right, role in missing)
    mend = "; ".join([f"GRANT USAGE ON SCHEMA belated TO {missing[0][2]}", *grants])
    finding = f"the role lacks {len(missing)} privileges that a {kinds} needs: {listed}"
    return wrong("rights", finding, mend)


# --- SQLite --------------------------------------------------------------------------------------


def examine_sqlite(path: Path) -> Iterator[Finding]:
    """Check that a SQLite file and its disk are safe, without writing to the file."""
    folder = path.absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        finding = f"the folder {folder} does not exist or is not writable"
        yield wrong("store", finding, "create it for the user of the service")
        return
    yield from _disk(folder)
    if not path.exists():
        mend = "start the service, which creates it"
        yield warning("store", f"{str(path)!r} does not exist yet", mend)
        return
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        finding = f"{str(path)!r} is not a file that this user can read and write"
        yield wrong("store", finding, "chown it to the user of the service")
        return
    yield ok("store", f"{str(path)!r} exists, {path.stat().st_size >> 10} KiB")
    yield _permissions(path)
    yield from _sqlite_settings(path)


def _disk(folder: Path) -> Iterator[Finding]:
    kind = file_system(folder)
    if kind in REMOTE:
        mend = "put the file on a local disk, or use PostgreSQL"
        yield wrong("local disk", f"{folder} is on {kind}: commits can be lost there", mend)
    elif kind is None:
        yield ok("local disk", f"the file system of {folder} is unknown: check that it is local")
    else:
        yield ok("local disk", f"{folder} is on {kind}")
    yield _sync("sync", folder)
    yield _room("disk room", folder, FREE)


def _permissions(path: Path) -> Finding:
    if os.name != "posix":
        return ok("permissions", "not checked on this system")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        finding = f"{mode:04o}: other users of this machine can read decisions and rewards"
        return warning("permissions", finding, f"chmod 600 {path}")
    return ok("permissions", f"{mode:04o}")


def _sqlite_settings(path: Path) -> Iterator[Finding]:
    try:
        with open_read_only(path) as connection:
            (log,) = connection.execute("PRAGMA journal_mode").fetchone()
            results = [line for (line,) in connection.execute("PRAGMA quick_check(3)")]
    except BelatedError as error:
        yield wrong("integrity", str(error), "restore a backup, or choose another file")
        return
    if log == "wal":
        # belated sets synchronous = FULL on every connection, and refuses files without WAL.
        yield ok("write-ahead log", "on, and every commit is synced (synchronous = FULL)")
    else:
        mend = "open the file once with belated, which enables it"
        yield wrong("write-ahead log", f"journal_mode is {log}", mend)
    if results == ["ok"]:
        yield ok("integrity", "quick_check found no damage")
    else:
        mend = "restore a backup; `belated journal verify` lists the damaged records"
        yield wrong("integrity", "; ".join(results), mend)


def file_system(folder: Path) -> str | None:
    """Return the type of file system that contains a folder; None if unknown."""
    if sys.platform != "linux":
        return None
    kind, longest = None, -1
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            before, _, after = line.partition(" - ")
            mount = Path(before.split()[4].encode().decode("unicode_escape"))
            if folder.resolve().is_relative_to(mount) and len(mount.parts) >= longest:
                kind, longest = after.split()[0], len(mount.parts)
    return kind
