"""Resolve command arguments that name a store: addresses, configuration files and SQLite files.

Opening a journal creates it if it does not exist, but a command that only reads must not create
anything. Commands therefore first check whether the store lists the journal.
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

#: The first bytes of a SQLite file, and file name extensions for new files.
SQLITE, ENDINGS = b"SQLite format 3\0", (".db", ".sqlite", ".sqlite3")


def add_address(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the journal to read."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="sqlite:///offers.db or postgresql://user@host/name, with ?bandit=NAME if it contains "
        "several bandits; a SQLite file; or the config file of a service",
    )


def address_in(text: str, *, new: bool = False) -> str | None:
    """Return the address that an argument refers to; None if it names a configuration file.

    If the argument is a SQLite file, the resulting address is reported on stderr.

    Args:
        text: the argument. ``?bandit=NAME`` may follow an address or a file name.
        new: whether to accept a SQLite file that does not exist yet.

    Raises:
        InvalidInput: the argument is neither an address nor the name of such a file.
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
    elif "=" in name or not name:  # perhaps libpq parameters with a password
        split_address(text)
    elif not (new and file.suffix in ENDINGS):
        message = f"{name} is not an address, and no such file exists: pass sqlite:///offers.db"
        raise InvalidInput(f"{message}, the name of a SQLite file, or a config file", text)
    address = f"sqlite:///{name.replace('%', '%25')}{mark}{query}"
    _report(text, address)
    return address


def config_file(text: str) -> str:
    """Return the file name of a configuration, after checking that it is not a journal.

    Raises:
        InvalidInput: the argument is an address or a SQLite file.
    """
    if "://" in text or _is_sqlite(Path(text)):
        message = "this command needs a service's config file, not a journal"
        raise InvalidInput(f"{message}: pass belated.toml, created by `belated init`", None)
    return text


def _is_sqlite(file: Path) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return content.read(len(SQLITE)) == SQLITE


def _report(text: str, place: str) -> None:
    print(f"belated: reading {text} as {place}", file=sys.stderr)


def _place_of(text: str) -> tuple[Store, str | None]:
    """Return the store that an argument names, and the bandit; None if it names no bandit."""
    address = address_in(text)
    if address is not None:
        place, bandit = split_address(address)
        return open_store(place), None if place == address else bandit
    file, _, query = text.partition("?")
    config = read(file)
    _report(text, f"the config file of {config.store.place}")
    names = [bandit.name for bandit in config.bandits]
    named = query.removeprefix("bandit=") or (names[0] if len(names) == 1 else None)
    return config.store, named


def find_bandits(address: str) -> tuple[Store, list[StoredBandit]]:
    """Return the store that an argument names, with the bandit that it names or all bandits."""
    store, name = _place_of(address)
    if isinstance(store, SQLiteStore) and not store.path.exists():
        raise InvalidInput(f"{store.path}: no such file")
    bandits = store.describe()
    if not bandits:
        raise InvalidInput(f"{store.place} contains no bandits")
    if name is None:
        return store, bandits
    for bandit in bandits:
        if bandit.name == name:
            return store, [bandit]
    names = _names(bandits)
    raise InvalidInput(f"{store.place} has no bandit {name!r}; known bandits: {names}", name)


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Add the option for the archive of trimmed records."""
    about = "read trimmed records from this archive, written by `belated journal archive`"
    add_option(parser, "--archive", about, metavar="FOLDER")


@contextmanager
def opened(address: str, archive: str | None = None) -> Iterator[tuple[Journal, StoredBandit]]:
    """Open the journal of the bandit that an address names, or of the only bandit in the store.

    Args:
        address: the address of the journal.
        archive: the folder that contains trimmed records.
    """
    store, bandits = find_bandits(address)
    if len(bandits) > 1:
        message = f"{store.place} contains {_names(bandits)}: add ?bandit=NAME to the address"
        raise InvalidInput(message)
    with store.journal(bandits[0].name) as journal:
        if archive is None:
            yield journal, bandits[0]
        else:
            yield WholeJournal(journal, Archive(archive, bandits[0].name)), bandits[0]


def starts_of(journal: Journal) -> list[Tail]:
    """Return the position and timestamp of the last trimmed record of each partition."""
    return [journal.start(partition) for partition in range(journal.partitions)]


def ends_of(journal: Journal) -> list[int]:
    """Return the last position of each partition."""
    return [journal.end(partition) for partition in range(journal.partitions)]


def undoing_in(journal: Journal) -> list[int]:
    """Return the number of erasures and retractions in each partition."""
    return [len(journal.undone(partition)) for partition in range(journal.partitions)]


def configured(journal: Journal) -> Configured | None:
    """Return the settings stored in a journal; None if they are missing or damaged."""
    with suppress(CorruptEvent, CorruptJournal):
        return journal.configured()
    return None


def _names(bandits: list[StoredBandit]) -> str:
    return ", ".join(repr(bandit.name) for bandit in bandits)


# --- configuration of a service ------------------------------------------------------------------


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the configuration file."""
    parser.add_argument("file", metavar="CONFIG", help="TOML config file, such as belated.toml")


def add_service(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the configuration file, for commands that take other arguments."""
    about = "config file of the service"
    add_option(parser, "--config", about, default="belated.toml", metavar="FILE")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the configuration file argument and the options for long-running commands."""
    add_file(parser)
    about = "create or migrate the tables first; not needed for SQLite"
    add_option(parser, "--create-tables", about, action="store_true")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="minimum level of JSON logs on stderr (default: info)",
    )


def prepared(options: argparse.Namespace) -> Config:
    """Read the configuration, start logging, and check that all journals can be opened."""
    config = read(options.file)

    from belated.service.operating.logs import start_logging

    start_logging(options.log_level)
    if options.create_tables:
        config.store.create_tables()
    for bandit in config.bandits:  # fail early, with a one-line error
        config.store.journal(bandit.name, partitions=bandit.partitions).close()
    return config


@contextmanager
def controlled(options: argparse.Namespace) -> Iterator[tuple[Definition, Journal, Store]]:
    """Open the journal of the bandit named on the command line, in the service's store."""
    config = read(options.config)
    bandits = {bandit.name: bandit for bandit in config.bandits}
    if (name := options.bandit) not in bandits:
        names = ", ".join(map(repr, bandits))
        message = f"{options.config} has no bandit {name!r}; known bandits: {names}"
        raise InvalidInput(message, name)
    with config.store.journal(name, partitions=bandits[name].partitions) as journal:
        yield bandits[name], journal, config.store


def extras() -> list[Finding]:
    """Return a finding for each extra that the service requires but that is not installed."""
    from belated.service.operating.doctor import wrong

    try:
        from belated.service.http import server  # noqa: F401
        from belated.service.operating import metrics  # noqa: F401
    except MissingExtra as error:
        return [wrong("extras", f"{error.what} needs {error.extra!r}", str(error))]
    return []


def read(file: str) -> Config:
    """Read a configuration file. If it contains several errors, the exception shows the first."""
    from belated.service.operating.config import read_config

    try:
        return read_config(config_file(file))
    except InvalidConfig as error:
        first, *remaining = error.mistakes
        if not remaining:
            raise
        summary = f"and {len(remaining)} more: see `belated serve --check {file}`"
        raise InvalidConfig([first, summary]) from None


# --- identity ------------------------------------------------------------------------------------

#: The end of a message about a snapshot saved with different settings.
OTHER_SETTINGS = (
    "was saved with other settings or by another release: pass the bandit's --window, --default, "
    "--retention, --reduce and --bounds"
)


def empty_fold(
    bandit: StoredBandit, journal: Journal, rewards: Rewards, retention: int | None
) -> Fold:
    """Return an empty fold that learns in the same way as the bandit. Its policy is irrelevant.

    Custom features cannot be created here. In this case, the fold omits rows of earlier features.

    Raises:
        InvalidInput: no bandit has used the journal yet, or the journal's identity cannot be read.
    """
    identity = bandit.identity
    if identity is None:
        message = f"no bandit has used the journal of {bandit.name!r} yet"
        raise InvalidInput(f"{message}: open it with a Bandit or a service first")
    dim, blocks = identity.get("dim", ""), identity.get("blocks", "1")
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", number) for number in (dim, blocks)):
        message = f"the journal's identity has invalid sizes: dim {dim!r}, blocks {blocks!r}"
        raise InvalidInput(message, dim)
    family = family_in(identity.get("family", ""))
    made_by = identity.get("features", "")
    policy = Greedy(
        int(dim), family, blocks=int(blocks) if "blocks" in identity else None, features=made_by
    )
    features = _features_of(journal)
    if features is not None and features.fingerprint != made_by:  # written by a different release
        features = None
    return Fold(
        policy, rewards, features=features, partitions=bandit.partitions, retention=retention
    )


def _features_of(journal: Journal) -> Features | None:
    """Return the features in the journal's settings; None if missing or custom."""
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
    """Open a journal as a log for evaluations.

    Args:
        address: the address of the journal.
        archive: the folder that contains trimmed records.
        until: omit records with a later timestamp, in microseconds since 1970.
    """
    with (
        opened(address, archive) as (journal, _),
        Progress("read", sum(ends_of(journal))) as progress,
    ):
        yield JournalLog.of_journal(journal, step=progress.step, until=until)
