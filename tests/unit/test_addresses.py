"""Any store by its address."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from belated.core.events import Void
from belated.exceptions import InvalidInput
from belated.journals import MemoryJournal, SQLiteJournal, Store, open_journal, open_store
from belated.journals.addresses import split_address


@pytest.mark.parametrize(
    ("address", "split"),
    [
        ("memory:", ("memory:", "default")),
        ("memory:?bandit=offers", ("memory:", "offers")),
        ("sqlite:///a/b.db", ("sqlite:///a/b.db", "default")),
        ("sqlite:////a/b.db?bandit=of%20fers%3F", ("sqlite:////a/b.db", "of fers?")),
        (
            "postgresql://me:p%40ss@one:1,two:2/name?sslmode=require&bandit=a%26b&connect_timeout=3",
            ("postgresql://me:p%40ss@one:1,two:2/name?sslmode=require&connect_timeout=3", "a&b"),
        ),
        ("postgres:///name?bandit=x", ("postgres:///name", "x")),
        ("postgresql:///name?mybandit=x", ("postgresql:///name?mybandit=x", "default")),
    ],
)
def test_the_bandit_is_taken_out_of_an_address(address: str, split: tuple[str, str]) -> None:
    """All else stays as it was written."""
    assert split_address(address) == split


def test_the_kind_and_the_place_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a connection, and never with a password."""
    monkeypatch.delenv("PGHOST", raising=False)
    for address, name, place in [
        ("memory:", "memory", "the memory of this process"),
        ("sqlite:///offers.db", "sqlite", "'offers.db'"),
        ("sqlite:////var/a%20b%3F.db", "sqlite", "'/var/a b?.db'"),
        ("postgresql://me:secret@db:5432/shop", "postgresql", "database 'shop' on db:5432"),
        ("postgres:///shop?password=secret", "postgresql", "database 'shop' on this machine"),
    ]:
        store = open_store(address)
        assert isinstance(store, Store)
        assert (store.name, store.place) == (name, place)
        assert "secret" not in repr(store)


@pytest.mark.parametrize(
    ("address", "cure"),
    [
        ("offers.db", "'sqlite:///offers.db'"),
        ("/var/offers.db", "'sqlite:////var/offers.db'"),
        ("C:/offers.db", "'sqlite:///C:/offers.db'"),
        ("", "'sqlite:///offers.db'"),
        ("mysql://me:secret@db/shop", "unknown scheme 'mysql'"),
        ("host=db password=secret", "'postgresql://user@host/name'"),
        ("postgresql:shop", "'postgresql://'"),
        ("memory://", "'memory:' alone"),
        ("memory:?size=5", "'memory:' alone"),
        ("sqlite:offers.db", "'sqlite:///offers.db'"),
        ("sqlite://offers.db", "'sqlite:///offers.db'"),
        ("sqlite:///", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("sqlite:///:memory:", "use 'memory:'"),
        ("sqlite:///offers.db?mode=ro", "mode=ro.*remove them"),
        ("memory:?bandit=a&bandit=b", "more than one bandit"),
        ("postgresql://me:secret@db/shop?bandit=a&bandit=b", "keep one"),
        ("memory:?bandit=", "name in the address must be text"),
        (Path("offers.db"), "pass a string"),
        (None, "pass a string"),
    ],
)
def test_what_is_no_address_is_refused_with_the_cure(address: str, cure: str) -> None:
    """And without a password."""
    for opener in (open_store, open_journal):
        with pytest.raises(InvalidInput, match=cure) as error:
            opener(address)
        assert "secret" not in str(error.value)


def test_a_store_is_not_that_of_one_bandit() -> None:
    """Or its name would be passed over in silence."""
    with pytest.raises(InvalidInput, match="open_journal"):
        open_store("memory:?bandit=offers")


def test_journals_are_opened_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is relative to where the process is; what was there is found again."""
    monkeypatch.chdir(tmp_path)
    with open_journal("sqlite:///offers.db?bandit=offers", partitions=2) as journal:
        assert isinstance(journal, SQLiteJournal)
        assert (journal.bandit, journal.partitions) == ("offers", 2)
        journal.append([Void("a", 5)])
    with open_journal(f"sqlite:///{tmp_path}/offers.db?bandit=offers") as journal:
        assert len(journal.records_of(["a"])) == 1
    assert [bandit.name for bandit in open_store("sqlite:///offers.db").describe()] == ["offers"]
    with open_journal("memory:") as journal, open_journal("memory:") as second:
        assert isinstance(journal, MemoryJournal)
        journal.append([Void("a", 5)])
        assert second.end(0) == 0


WITHOUT = """
import sys
sys.modules["psycopg"] = None
from belated.exceptions import MissingExtra
from belated.journals import open_journal, open_store
from belated.journals.addresses import split_address
address = "postgresql://me:secret@db/shop"
print(split_address(address + "?bandit=x")[1], open_store(address).place)
sys.modules["confluent_kafka"] = None
for one in (address, "kafka://k1:9092?shelf=" + address):
    try:
        open_store(one)
        open_journal(one)
    except MissingExtra as error:
        print(error)
"""


def test_reading_an_address_needs_no_extra() -> None:
    """Opening it does, and says which."""
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert process.stdout.splitlines() == [
        "x database 'shop' on db",
        "PostgreSQL needs an extra: pip install 'belated[postgres]', "
        "or in a clone pip install '.[postgres]'",
        "Kafka needs an extra: pip install 'belated[kafka]', or in a clone pip install '.[kafka]'",
    ]
