"""Any store by its address.

* ``memory:``: the memory of this process.
* ``sqlite:///offers.db``: a file, relative to the working directory; ``sqlite:////var/offers.db``
  with four slashes: an absolute path. Write ``?`` and ``%`` in a path as ``%3F`` and ``%25``.
* ``postgresql://user@host:5432/name``: a database; also ``postgres://``, and with any parameters
  that PostgreSQL knows.
* ``kafka://host:9092,host:9092?shelf=postgresql://user@host/name``: a log in Kafka, and all else in
  that database, or for one machine in a file, ``shelf=sqlite:///offers.db``. Write ``?``, ``&`` and
  ``%`` in its address as ``%3F``, ``%26`` and ``%25``. With ``copies=`` for another number than 3,
  and any parameters that librdkafka knows.

To any of them ``?bandit=offers`` adds the name of the bandit, which is ``default`` otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from belated.core.ids import check_id
from belated.exceptions import InvalidInput
from belated.journals.journal import Journal
from belated.journals.memory import MemoryStore
from belated.journals.sqlite.store import SQLiteStore
from belated.journals.store import Store


def open_store(address: str) -> Store:
    """Return the store at an address; nothing is opened or made yet.

    Args:
        address: ``memory:``, ``sqlite:///offers.db``, ``postgresql://user@host/name``, or
            ``kafka://host:9092?shelf=postgresql://user@host/name``.

    Raises:
        InvalidInput: it is not such an address, or names a bandit.

    >>> open_store("sqlite:///offers.db").name
    'sqlite'
    """
    place, _ = split_address(address)
    if place != address:
        message = "the address names a bandit, and a store holds many: leave out `bandit=`"
        raise InvalidInput(f"{message}, or open that bandit's journal with open_journal(address)")
    scheme, _, rest = address.partition(":")
    return _STORES[scheme](address, rest)


def open_journal(address: str, *, partitions: int | None = None, wait: float = 10.0) -> Journal:
    """Open the journal of the bandit that an address names, ``default`` if it names none.

    Args:
        address: As for :func:`open_store`, with ``?bandit=NAME`` if you like.
        partitions: A power of two, fixed when the journal is made; None for as many as there are,
            and 1 in a new one.
        wait: Seconds to wait for the store before :class:`JournalUnavailable`.

    Raises:
        InvalidInput: it is not such an address.
        MissingExtra: the store needs an extra that is not installed; names the pip command.

    >>> with open_journal("memory:?bandit=offers") as journal:
    ...     journal.bandit
    'offers'
    """
    place, bandit = split_address(address)
    return open_store(place).journal(bandit, partitions=partitions, wait=wait)


def split_address(address: str) -> tuple[str, str]:
    """Return an address without its bandit, and the name of the bandit.

    >>> split_address("postgresql://db/shop?sslmode=require&bandit=offers")
    ('postgresql://db/shop?sslmode=require', 'offers')
    >>> split_address("sqlite:///shop.db")
    ('sqlite:///shop.db', 'default')
    """
    _check_scheme(address)
    place, _, query = address.partition("?")
    parameters = query.split("&") if query else []
    bandits = [one for one in parameters if one.partition("=")[0] == "bandit"]
    if len(bandits) > 1:
        raise InvalidInput("the address names more than one bandit: keep one `bandit=`")
    if not bandits:
        return address, "default"
    bandit = check_id(unquote(bandits[0].partition("=")[2]), "the bandit's name in the address")
    others = "&".join(one for one in parameters if one not in bandits)
    return f"{place}?{others}" if others else place, bandit


# Messages never repeat an address whose scheme is not known to have no password.


def _check_scheme(address: Any) -> None:
    if not isinstance(address, str):
        message = f"{address!r} is not an address: text was expected, as in {_EXAMPLES}"
        raise InvalidInput(message, address)
    scheme, colon, rest = address.partition(":")
    if scheme not in _STORES or not colon:
        raise InvalidInput(_unknown_scheme(address, scheme))
    if scheme.startswith("postgres") and not rest.startswith("//"):
        raise InvalidInput(f"the address begins with {scheme!r}, but not with {scheme + '://'!r}")


def _unknown_scheme(address: str, scheme: str) -> str:
    if "://" in address:
        return f"the scheme {scheme!r} is not known: use {_EXAMPLES}"
    if not address or ("=" in address and not Path(address).exists()):  # libpq's, with a password?
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
        message = f"{address!r} has parameters that SQLite does not know, {query!r}"
        raise InvalidInput(f"{message}: leave them out, and write ? in a path as %3F", address)
    if not place.startswith("///"):
        cure = f"'sqlite:///{place.lstrip('/')}'"
        message = f"{address!r} is not the address of a file: three slashes make a relative path"
        raise InvalidInput(f"{message}, as in {cure}, and four an absolute one", address)
    path = unquote(place.removeprefix("///"))
    if not path or path.endswith("/"):
        raise InvalidInput(f"{address!r} names no file: use 'sqlite:///offers.db'", address)
    if path == ":memory:":
        raise InvalidInput(f"{address!r} would not be durable: use 'memory:' to say so", address)
    return SQLiteStore(path)


def _postgres(address: str, rest: str) -> Store:
    from belated.journals.postgres.store import PostgresStore

    return PostgresStore(address)


def _kafka(address: str, rest: str) -> Store:
    from belated.journals.kafka.store import KafkaStore

    place, _, query = rest.partition("?")
    brokers = place.removeprefix("//").rstrip("/")
    if not place.startswith("//") or not brokers or "/" in brokers or "@" in brokers:
        raise InvalidInput(f"the address names no brokers: use {_KAFKA}")
    given = [one.partition("=") for one in query.split("&") if one]
    settings = {unquote(name): unquote(value) for name, _, value in given}
    shelf = settings.pop("shelf", "")
    if shelf.partition(":")[0] not in ("postgresql", "postgres", "sqlite"):
        raise InvalidInput(f"the address names no database as its shelf: use {_KAFKA}")
    copies = settings.pop("copies", "3")
    if not (copies.isdecimal() and int(copies)):
        raise InvalidInput(f"copies is {copies!r}: how many brokers have each record", copies)
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
