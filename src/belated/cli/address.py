"""Find and read an existing journal by its address.

Opening a journal creates it if it is new, and reading must not create anything. So commands first
look up the journal in what the store describes.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from belated.cli.options import add_option
from belated.cli.text import Progress
from belated.core.events import Configured
from belated.core.rewards import Rewards
from belated.evaluation.journal import JournalLog
from belated.exceptions import CorruptEvent, CorruptJournal, InvalidInput
from belated.expressions import as_features, family_in
from belated.features import Features
from belated.fold.fold import Fold
from belated.journals import Journal, SQLiteStore, Store, StoredBandit, open_store, split_address
from belated.journals.archive import Archive, WholeJournal
from belated.journals.log import Tail
from belated.policies import Greedy


def add_address(parser: argparse.ArgumentParser) -> None:
    """The journal that is read."""
    parser.add_argument(
        "address",
        metavar="ADDRESS",
        help="sqlite:///offers.db or postgresql://user@host/name, with ?bandit=NAME if it holds "
        "several",
    )


def find_bandits(address: str) -> tuple[Store, list[StoredBandit]]:
    """Return the store at an address, and all its bandits; only the one that the address names."""
    place, name = split_address(address)
    store = open_store(place)
    if isinstance(store, SQLiteStore) and not store.path.exists():
        raise InvalidInput(f"{store.path}: there is no such file")
    found = store.describe()
    if not found:
        raise InvalidInput(f"{store.place} holds no bandit")
    if place == address:
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
