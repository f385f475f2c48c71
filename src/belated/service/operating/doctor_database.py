"""What the doctor asks of the database."""

from __future__ import annotations

import time
from collections.abc import Iterator

from belated.exceptions import BelatedError
from belated.journals.postgres.queries import VERSION
from belated.journals.postgres.session import PostgresLook
from belated.service.http.app import FRESH
from belated.service.operating.config import Config
from belated.service.operating.findings import Finding, ok, warning, wrong
from belated.service.serving.definition import Definition

#: Seconds by which the clocks may differ: times are for people, stamps are the server's.
CLOCKS = 1.0
#: Each setting of the server with the values under which acknowledged events can be lost.
UNSAFE = (
    ("fsync", ("off",)),
    ("full_page_writes", ("off",)),
    ("synchronous_commit", ("off", "local")),
)


def examine_database(config: Config) -> Iterator[Finding]:
    """Whether it can keep what is promised."""
    try:
        look = PostgresLook(config.database.dsn)
    except BelatedError as error:
        yield wrong("database", str(error), "start it, or correct the dsn")
        return
    try:
        yield ok("database", f"{look.place} answers")
        yield from _server(look)
        yield _clock(look)
        for check in (_rights, _tables):
            found = check(look)
            yield found
            if found.state == "wrong":  # then nothing beyond can be asked
                return
        for one in config.bandits:
            yield from _bandit(look, one)
    except BelatedError as error:
        yield wrong("database", str(error), "see the log of the server")
    finally:
        look.close()


def _server(look: PostgresLook) -> Iterator[Finding]:
    version, standby, *values = look.ask("settings")[0]
    if version < 140_000:
        yield wrong("version", f"PostgreSQL {version // 10_000}", "14 or later is needed")
    else:
        yield ok("version", f"PostgreSQL {version // 10_000}")
    if standby:
        what = "it is a standby, which lags behind and takes no events"
        yield wrong("primary", what, "name the primary in the dsn")
    else:
        yield ok("primary", "it takes events")
    for (name, unsafe), value in zip(UNSAFE, values, strict=True):
        if value in unsafe:
            what = f"it is {value}: acknowledged events can be lost"
            yield wrong(name, what, f"set {name} = on, and restart or reload the server")
        else:
            yield ok(name, f"it is {value}")


def _clock(look: PostgresLook) -> Finding:
    before = time.time_ns() // 1000
    ((theirs,),) = look.ask("clock")
    ours = (before + time.time_ns() // 1000) // 2
    apart = abs(theirs - ours) / 1e6
    if apart > CLOCKS:
        what = f"it is {apart:.1f} s apart from the server's: times in records will not agree"
        return warning("clock", what, "have both set by NTP")
    return ok("clock", f"it is {1e3 * apart:.0f} ms apart from the server's")


def _tables(look: PostgresLook) -> Finding:
    if look.ask("has_tables") != [(True,)]:
        return wrong("tables", "there are none", 'run `belated schema | psql "$DATABASE_URL"`')
    ((version, oldest),) = look.ask("version")
    if (version or 0) < VERSION:
        mend = f'run `belated schema --from {version or 0} | psql "$DATABASE_URL"`'
        return wrong("tables", f"they have version {version}, and {VERSION} is needed", mend)
    if oldest > VERSION:
        return wrong("tables", f"they have version {version}, which is newer", "upgrade belated")
    return ok("tables", f"they have version {version}")


def _rights(look: PostgresLook) -> Finding:
    missing = look.ask("missing_rights")
    if not missing:
        return ok("rights", "the role may do what it must")
    named = ", ".join(f"{right} on {table}" for table, right in missing[:5])
    mend = (
        "GRANT USAGE ON SCHEMA belated, and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "
        "belated"
    )
    return wrong("rights", f"the role lacks {len(missing)}: {named}", mend)


def _bandit(look: PostgresLook, made: Definition) -> Iterator[Finding]:
    name = made.name
    found = look.ask("standing", name=name)
    if not found:
        mend = "start the service: it makes it"
        yield warning(f"journal of {name}", "there is none yet", mend)
        return
    ((partitions, holder, seconds, age),) = found
    if made.partitions not in (None, partitions):
        what = f"it has {partitions} partitions, and the file says {made.partitions}"
        mend = f"write partitions = {partitions}, or move it with `belated journal import`"
        yield wrong(f"journal of {name}", what, mend)
    else:
        yield ok(f"journal of {name}", f"it has {partitions} partitions")
    if holder is None:
        mend = "start `belated learn`, or a service with learn = true; its log says why not"
        yield warning(f"leader of {name}", "nobody learns", mend)
    else:
        lease = f"its lease ends in {seconds:.0f} s unless it is renewed"
        yield ok(f"leader of {name}", f"{holder}; {lease}")
    yield _model(name, age)


def _model(name: str, age: float | None) -> Finding:
    if age is None:
        return warning(f"model of {name}", "there is none yet", "see that a learner runs")
    if age > FRESH:
        mend = "see that a learner runs, and whether it is switched to freeze"
        return warning(f"model of {name}", f"it is {age / 60:.0f} minutes old", mend)
    return ok(f"model of {name}", f"it is {age:.1f} s old")
