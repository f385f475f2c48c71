"""What the argument of a command names: an address, a configuration file, or a file of SQLite.

Opening a journal creates it if it is new, and reading must not create anything. So commands first
look up the journal in what the store describes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from belated.cli.options import add_option
from belated.cli.text import Progress
from belated.core.events import Configured
from belated.core.rewards import Rewards
from belated.evaluation.journal import JournalLog
from belated.exceptions import (
    CorruptEvent,
    CorruptJournal,
    InvalidConfig,
    InvalidInput,
    MissingExtra,
)
from belated.expressions import as_features, family_in
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal, SQLiteStore, Store, open_store
from belated.journals.addresses import split_address
from belated.journals.archive import Archive, WholeJournal
from belated.journals.log import Tail
from belated.journals.store import StoredBandit
from belated.policies import Greedy

if TYPE_CHECKING:
    from belated.service.operating.config import Config
    from belated.service.operating.doctor import Finding
    from belated.service.serving.definition import Definition

#: How a file of SQLite begins, and the endings of new ones.
SQLITE, ENDINGS = b"SQLite format 3\0", (".db", ".sqlite", ".sqlite3")


def add_address(parser: argparse.ArgumentParser) -> None:
    """The journal that is read."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="sqlite:///offers.db or postgresql://user@host/name, with ?bandit=NAME if it holds "
        "several; or a file of SQLite, or the config file of a service",
    )


def address_in(text: str, *, new: bool = False) -> str | None:
    """Return the address that an argument is or stands for; None if it is a configuration file.

    What is not written as an address is reported on stderr as what it is taken for.

    Args:
        text: the argument; ``?bandit=NAME`` may follow the name of a file, too.
        new: whether a file of SQLite may be missing.

    Raises:
        InvalidInput: it is none of them.
    """
    name, mark, query = text.partition("?")
    file = Path(name)
    if "://" in text or (re.match("[a-z]{2,}:", text) and not file.exists()):
        return text
    if file.suffix == ".toml":
        return None
    if file.is_file():
        if not _is_sqlite(file):
            return None
    elif "=" in name or not name:  # libpq's parameters, with a password?
        split_address(text)
    elif not (new and file.suffix in ENDINGS):
        message = f"{name} is no address, and there is no such file: pass sqlite:///offers.db"
        raise InvalidInput(f"{message}, the name of a file of SQLite, or a config file", text)
    address = f"sqlite:///{name.replace('%', '%25')}{mark}{query}"
    _report(text, address)
    return address


def config_file(text: str) -> str:
    """Return the name of a configuration file.

    Raises:
        InvalidInput: it is an address, or a file of SQLite.
    """
    if "://" in text or _is_sqlite(Path(text)):
        message = "this command reads the config file of a service, and that is a journal"
        raise InvalidInput(f"{message}: pass belated.toml, which `belated init` writes", None)
    return text


def _is_sqlite(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(len(SQLITE)) == SQLITE


def _report(text: str, place: str) -> None:
    print(f"belated: {text} is taken for {place}", file=sys.stderr)


def _place_of(text: str) -> tuple[Store, str | None]:
    """Return the store that an argument names, and the bandit; None if it names none."""
    address = address_in(text)
    if address is not None:
        place, bandit = split_address(address)
        return open_store(place), None if place == address else bandit
    file, _, query = text.partition("?")
    config = read(file)
    _report(text, f"the config file of {config.store.place}")
    names = [one.name for one in config.bandits]
    named = query.removeprefix("bandit=") or (names[0] if len(names) == 1 else None)
    return config.store, named


def find_bandits(address: str) -> tuple[Store, list[StoredBandit]]:
    """Return the store that an argument names, and all its bandits; or the one that it names."""
    store, name = _place_of(address)
    if isinstance(store, SQLiteStore) and not store.path.exists():
        raise InvalidInput(f"{store.path}: there is no such file")
    found = store.describe()
    if not found:
        raise InvalidInput(f"{store.place} holds no bandit")
    if name is None:
        return store, found
    for one in found:
        if one.name == name:
            return store, [one]
    raise InvalidInput(f"{store.place} holds no bandit {name!r}, but {_names(found)}", name)


def add_archive(parser: argparse.ArgumentParser) -> None:
    """What was trimmed from it, and archived before."""
    about = "read what was trimmed from there: what `belated journal archive` wrote"
    add_option(parser, "--archive", about, metavar="FOLDER")


@contextmanager
def opened(address: str, archive: str | None = None) -> Iterator[tuple[Journal, StoredBandit]]:
    """The journal of the bandit that an address names, or of the only one there.

    Args:
        address: of the journal.
        archive: a folder from which to read what was trimmed.
    """
    store, found = find_bandits(address)
    if len(found) > 1:
        message = f"{store.place} holds {_names(found)}: add ?bandit=NAME to the address"
        raise InvalidInput(message)
    with store.journal(found[0].name) as journal:
        if archive is None:
            yield journal, found[0]
        else:
            yield WholeJournal(journal, Archive(archive, found[0].name)), found[0]


def starts_of(journal: Journal) -> list[Tail]:
    """The last record of each partition that was trimmed."""
    return [journal.start(partition) for partition in range(journal.partitions)]


def ends_of(journal: Journal) -> list[int]:
    """The last position of each partition."""
    return [journal.end(partition) for partition in range(journal.partitions)]


def undoing_in(journal: Journal) -> list[int]:
    """How many records of each partition undo others."""
    return [len(journal.undone(partition)) for partition in range(journal.partitions)]


def configured(journal: Journal) -> Configured | None:
    """What the journal says of its bandit; None if it says nothing, or that is damaged."""
    with suppress(CorruptEvent, CorruptJournal):
        return journal.configured()
    return None


def _names(found: list[StoredBandit]) -> str:
    return ", ".join(repr(one.name) for one in found)


# --- configuration of a service ------------------------------------------------------------------


def add_file(parser: argparse.ArgumentParser) -> None:
    """The configuration."""
    parser.add_argument("file", metavar="CONFIG", help="TOML config file, such as belated.toml")


def add_service(parser: argparse.ArgumentParser) -> None:
    """The configuration, of commands that name something else first."""
    about = "of the service, which says where the store is"
    add_option(parser, "--config", about, default="belated.toml", metavar="FILE")


def add_config(parser: argparse.ArgumentParser) -> None:
    """The file, and what is to be done before."""
    add_file(parser)
    about = "create or migrate the tables first; SQLite needs no such step"
    add_option(parser, "--create-tables", about, action="store_true")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="minimum level of JSON logs on stderr (default: info)",
    )


def prepared(options: argparse.Namespace) -> Config:
    """Return the configuration, once every journal in it could be opened."""
    config = read(options.file)

    from belated.service.operating.logs import start_logging

    start_logging(options.log_level)
    if options.create_tables:
        config.store.create_tables()
    for one in config.bandits:  # what cannot be opened is reported now, in one line
        config.store.journal(one.name, partitions=one.partitions).close()
    return config


@contextmanager
def controlled(options: argparse.Namespace) -> Iterator[tuple[Definition, Journal, Store]]:
    """Open the journal of the bandit that an operator names, in the store of its service."""
    config = read(options.config)
    known = {one.name: one for one in config.bandits}
    if (name := options.bandit) not in known:
        others = ", ".join(map(repr, known))
        raise InvalidInput(f"there is no bandit {name!r} in {options.config}, but {others}", name)
    with config.store.journal(name, partitions=known[name].partitions) as journal:
        yield known[name], journal, config.store


def extras() -> list[Finding]:
    """Return what is not installed that a service needs."""
    from belated.service.operating.doctor import wrong

    try:
        from belated.service.http import server  # noqa: F401
        from belated.service.operating import metrics  # noqa: F401
    except MissingExtra as error:
        return [wrong("extras", f"{error.what} needs {error.extra!r}", str(error))]
    return []


def read(file: str) -> Config:
    """Return the configuration in a file; of several mistakes the first is reported."""
    from belated.service.operating.config import read_config

    try:
        return read_config(config_file(file))
    except InvalidConfig as error:
        first, *more = error.mistakes
        if not more:
            raise
        rest = f"and {len(more)} more: see `belated serve --check {file}`"
        raise InvalidConfig([first, rest]) from None


# --- identity ------------------------------------------------------------------------------------

#: What to say of a snapshot that another fold has made.
OTHER_SETTINGS = (
    "was made with other settings, or by another release: give --window, --default, --retention, "
    "--reduce and --bounds as the bandit has them"
)


def empty_fold(
    bandit: StoredBandit, journal: Journal, rewards: Rewards, retention: int | None
) -> Fold:
    """Return a fold of nothing, which learns what the bandit does; how it chooses does not matter.

    Features of the user's own cannot be made here: then rows of earlier ones are left out.

    Raises:
        InvalidInput: no bandit has used the journal yet, or one that nobody here knows.
    """
    identity = bandit.identity
    if identity is None:
        raise InvalidInput(f"no bandit has used the journal of {bandit.name} yet")
    dim, blocks = identity.get("dim", ""), identity.get("blocks", "1")
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", one) for one in (dim, blocks)):
        message = f"the journal has {dim!r} coefficients in {blocks!r} blocks: not a number"
        raise InvalidInput(message, dim)
    family = family_in(identity.get("family", ""))
    made_by = identity.get("features", "")
    policy = Greedy(
        int(dim), family, blocks=int(blocks) if "blocks" in identity else None, features=made_by
    )
    features = _features_of(journal)
    if features is not None and features.fingerprint != made_by:  # another release has written it
        features = None
    return Fold(
        policy, rewards, features=features, partitions=bandit.partitions, retention=retention
    )


def _features_of(journal: Journal) -> Features | None:
    """Return the features that the journal names; None if it names none, or some of its user."""
    event = configured(journal)
    if event is None or "features" not in event.settings:
        return None
    with suppress(InvalidInput):
        return as_features(event.settings["features"])
    return None


# --- evaluation ----------------------------------------------------------------------------------


@contextmanager
def log_at(
    address: str, archive: str | None = None, until: int | None = None
) -> Iterator[JournalLog]:
    """The log in the journal at an address, which says what its bandit is.

    Args:
        address: of the journal.
        archive: a folder from which to read what was trimmed.
        until: leave out records stamped later, in microseconds since 1970.
    """
    with (
        opened(address, archive) as (journal, _),
        Progress("read", sum(ends_of(journal))) as progress,
    ):
        yield JournalLog.of_journal(journal, step=progress.step, until=until)
