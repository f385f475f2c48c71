"""What the doctor asks of a database of PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from belated.exceptions import BelatedError
from belated.journals import PostgresStore
from belated.journals.postgres.queries import VERSION
from belated.journals.postgres.rights import Role, rights_of
from belated.service.operating.doctor_bandits import CLOCKS
from belated.service.operating.findings import Finding, ok, warning, wrong

if TYPE_CHECKING:
    from belated.journals.postgres.look import PostgresLook

#: Each setting of the server with the values under which acknowledged events can be lost.
UNSAFE = (
    ("fsync", ("off",)),
    ("full_page_writes", ("off",)),
    ("synchronous_commit", ("off", "local")),
)
#: Values of ``synchronous_commit`` under which a commit is on the disk of a standby too.
WAITING = ("on", "remote_apply")


def examine_postgres(store: PostgresStore, roles: Collection[Role]) -> Iterator[Finding]:
    """Whether the database can keep what is promised, and lets processes of some kinds do it."""
    try:
        look = store.look()
    except BelatedError as error:
        yield wrong("store", str(error), "start it, or correct store.address")
        return
    try:
        yield ok("store", f"{look.place} answers")
        yield from _server(look)
        yield _failover(look)
        yield _clock(look)
        rights = _rights(look, roles)
        yield rights
        if rights.state == "ok":  # else the tables cannot be looked at
            yield _tables(look)
    except BelatedError as error:
        yield wrong("store", str(error), "see the log of the server")
    finally:
        look.close()


def _server(look: PostgresLook) -> Iterator[Finding]:
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


def _clock(look: PostgresLook) -> Finding:
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
