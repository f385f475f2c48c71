"""Addresses of stores and journals.

* ``memory:``: the memory of this process.
* ``sqlite:///offers.db``: a file, relative to the working directory. Four slashes, as in
  ``sqlite:////var/offers.db``, make an absolute path. Write ``?`` and ``%`` in a path as ``%3F``
  and ``%25``.
* ``postgresql://user@host:5432/name``: a database, with any PostgreSQL connection parameters;
  ``postgres://`` works too.
* ``kafka://host:9092,host:9092?shelf=postgresql://user@host/name``: a log in Kafka, with everything
  else in that database, or in a file if all processes run on one machine
  (``shelf=sqlite:///offers.db``). Write ``?``, ``&`` and ``%`` in the shelf's address as
  ``%3F``, ``%26`` and ``%25``. ``copies=`` sets the number of replicas (default 3); all other
  parameters are passed to librdkafka.

Append ``?bandit=offers`` to name a bandit; the default is ``default``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from belated.core.ids import check_id
from belated.core.inputs import must_be
from belated.exceptions import InvalidInput
from belated.journals.journal import Journal
from belated.journals.memory import MemoryStore
from belated.journals.sqlite.store import SQLiteStore
from belated.journals.store import Store


def open_store(address: str) -> Store:
    """Return the store at an address, without opening or creating anything.

    Args:
        address: ``memory:``, ``sqlite:///offers.db``, ``postgresql://user@host/name``, or
            ``kafka://host:9092?shelf=postgresql://user@host/name``.

    Raises:
        InvalidInput: the address is invalid, or names a bandit.

    >>> open_store("sqlite:///offers.db").name
    'sqlite'
    """
    place, _ = split_address(address)
    if place != address:
        message = "the address of a store must not name a bandit: remove `bandit=`"
        raise InvalidInput(f"{message}, or open that bandit's journal with open_journal(address)")
    scheme, _, location = address.partition(":")
    return _STORES[scheme](address, location)


def open_journal(address: str, *, partitions: int | None = None, wait: float = 10.0) -> Journal:
    """Open the journal of the bandit named in an address, by default ``default``.

    Args:
        address: As for :func:`open_store`, optionally with ``?bandit=NAME``.
        partitions: Number of partitions, a power of two that is fixed when the journal is created.
            None means the existing number, or 1 for a new journal.
        wait: Seconds to wait for the store before raising :class:`JournalUnavailable`.

    Raises:
        InvalidInput: the address is invalid.
        MissingExtra: the store requires an extra that is not installed; the message names it.

    >>> with open_journal("memory:?bandit=offers") as journal:
    ...     journal.bandit
    'offers'
    """
    place, bandit = split_address(address)
    return open_store(place).journal(bandit, partitions=partitions, wait=wait)


def split_address(address: str) -> tuple[str, str]:
    """Split an address into the address of the store and the name of the bandit.

    >>> split_address("postgresql://db/shop?sslmode=require&bandit=offers")
    ('postgresql://db/shop?sslmode=require', 'offers')
    >>> split_address("sqlite:///shop.db")
    ('sqlite:///shop.db', 'default')
    """
    _check_scheme(address)
    place, _, query = address.partition("?")
    parameters = query.split("&") if query else []
    bandits = [text for text in parameters if text.partition("=")[0] == "bandit"]
    if len(bandits) > 1:
        raise InvalidInput("the address names more than one bandit: keep one `bandit=`")
    if not bandits:
        return address, "default"
    bandit = check_id(unquote(bandits[0].partition("=")[2]), "the bandit's name in the address")
    options = "&".join(text for text in parameters if text not in bandits)
    return f"{place}?{options}" if options else place, bandit


# Error messages include an address only if its scheme does not allow passwords.


def _check_scheme(address: Any) -> None:
    if not isinstance(address, str):
        message = f"{address!r} is not an address: pass a string such as {_EXAMPLES}"
        raise InvalidInput(message, address)
    scheme, colon, location = address.partition(":")
    if scheme not in _STORES or not colon:
        raise InvalidInput(_unknown_scheme(address, scheme))
    if scheme.startswith("postgres") and not location.startswith("//"):
        raise InvalidInput(f"the address begins with {scheme!r}: write {scheme + '://'!r}")


def _unknown_scheme(address: str, scheme: str) -> str:
    if "://" in address:
        return f"unknown scheme {scheme!r} in the address: use {_EXAMPLES}"
    if not address or ("=" in address and not Path(address).exists()):  # may contain a password
        return f"the address has no scheme: use {_EXAMPLES}"
    escaped = address.replace("%", "%25").replace("?", "%3F")
    return f"{address!r} is not an address: for that file use 'sqlite:///{escaped}'"


def _memory(address: str, rest: str) -> Store:
    if rest:
        raise InvalidInput(f"{address!r} is not an address: use 'memory:' alone", address)
    return MemoryStore()


def _sqlite(address: str, rest: str) -> Store:
    place, mark, query = rest.partition("?")
    if mark:
        message = f"{address!r} has the parameters {query!r}, but SQLite accepts none"
        raise InvalidInput(f"{message}: remove them, and write ? in a path as %3F", address)
    if not place.startswith("///"):
        example = f"'sqlite:///{place.lstrip('/')}'"
        message = f"{address!r} is not the address of a file: use three slashes for a relative path"
        raise InvalidInput(f"{message}, as in {example}, and four for an absolute one", address)
    path = unquote(place.removeprefix("///"))
    if not path or path.endswith("/"):
        raise InvalidInput(f"{address!r} names no file: use 'sqlite:///offers.db'", address)
    if path == ":memory:":
        raise InvalidInput(f"{address!r} would not be durable: use 'memory:' instead", address)
    return SQLiteStore(path)


def _postgres(address: str, rest: str) -> Store:
    from belated.journals.postgres.store import PostgresStore

    return PostgresStore(address)


def _kafka(address: str, rest: str) -> Store:
    from belated.journals.kafka.store import KafkaStore

    place, _, query = rest.partition("?")
    brokers = place.removeprefix("//").rstrip("/")
    if not place.startswith("//") or not brokers or "/" in brokers or "@" in brokers:
        raise InvalidInput(f"the address contains no brokers: use {_KAFKA}")
    parameters = [text.partition("=") for text in query.split("&") if text]
    settings = {unquote(name): unquote(value) for name, _, value in parameters}
    shelf = settings.pop("shelf", "")
    if shelf.partition(":")[0] not in ("postgresql", "postgres", "sqlite"):
        raise InvalidInput(f"the address contains no database for its shelf: use {_KAFKA}")
    copies = settings.pop("copies", "3")
    if not (copies.isdecimal() and int(copies)):
        raise must_be("copies", "a number of replicas of at least 1", copies)
    snapshots = settings.pop("snapshots", None)
    return KafkaStore(
        brokers, shelf=shelf, copies=int(copies), settings=settings, snapshots=snapshots
    )


_EXAMPLES = "'memory:', 'sqlite:///offers.db' or 'postgresql://user@host/name'"
_KAFKA = "'kafka://host:9092,host:9092?shelf=postgresql://user@host/name'"
_STORES: dict[str, Callable[[str, str], Store]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "postgres": _postgres,
    "kafka": _kafka,
}
