"""``belated journal …`` on every store, and between stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.cli.journal import verify as journal_verify
from belated.cli.main import main
from belated.core.events import Record, Void, encode
from belated.journals import Journal, Store, open_store
from belated.journals.arrivals import AT_ONCE
from belated.journals.chain import LINK
from belated.journals.pages import pages

UCB = DelayedUCB(2, Bernoulli())
SIX_HOURS = Explicit(timedelta(hours=6))


@pytest.fixture
def used(store: Store, bandit: str) -> Iterator[Bandit]:
    """A bandit with a snapshot and later records."""
    journal = store.journal(bandit, partitions=2)
    with Bandit(policy=UCB, rewards=SIX_HOURS, journal=journal, seed=1) as instance:
        for n in range(30):
            decision = instance.decide(rows=np.eye(2), id=f"order-{n}")
            if n % 3:
                instance.observe(decision.id, float(n % 2))
            if n == 15:
                instance.save()
        instance.sync()
        yield instance


@pytest.fixture
def named(address: str, bandit: str) -> str:
    """Its address."""
    return f"{address}?bandit={quote(bandit)}"


def said(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    """Return the output of a command with the expected exit code."""
    capsys.readouterr()
    assert main(["journal", *map(str, arguments)]) == code, capsys.readouterr().err
    return capsys.readouterr().out


def records_of(journal: Journal) -> list[list[Record]]:
    """All records, by partition."""
    return [journal.read(p, 0, 10_000) for p in range(journal.partitions)]


def as_bytes(journal: Journal) -> list[list[tuple[int, int, bytes]]]:
    """Return the same as position, stamp and bytes."""
    return [
        [(record.position, record.recorded, encode(record.event)) for record in records]
        for records in records_of(journal)
    ]


def requests_in(journal: Journal) -> list[dict[int, bytes]]:
    """Return the stored requests of decisions, by partition."""
    return [
        journal.requests(partition, [record.position for record in records])
        for partition, records in enumerate(records_of(journal))
    ]


def test_looking_changes_nothing(
    used: Bandit, named: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """The contents, a verification, and the history of one decision."""
    records, description = as_bytes(used.journal), store.describe()
    (summary,) = json.loads(said(capsys, "inspect", named, "--json"))["bandits"]
    assert summary["records"] == sum(map(len, records))
    assert summary["identity"] == {"family": "Bernoulli()", "dim": "2", "features": ""}
    assert [snapshot["partition"] for snapshot in summary["snapshots"]] == [0, 1]
    assert all(snapshot["bytes"] > 0 for snapshot in summary["snapshots"])
    assert (summary["configured"]["rewards"], summary["configured"]["window"]) == ("Explicit", "6h")
    assert "window    6h" in said(capsys, "inspect", named)
    report = json.loads(said(capsys, "verify", named, "--window", "5h", "--json", code=2))
    assert report["status"] == "not compared"
    report = json.loads(said(capsys, "verify", named, "--json"))  # as the journal says it
    assert (report["status"], report["compared"]) == ("ok", 2)
    assert report["digest"] == used.digest
    due_times = [
        json.loads(said(capsys, "show", "order-1", named, "--json", *options))["due"]
        for options in ([], ["--window", "6h"], ["--window", "5h"], ["--reduce", "max"])
    ]
    assert due_times[0] == due_times[1] == due_times[2] + 3_600_000_000
    assert due_times[3] is None
    entry = json.loads(said(capsys, "show", "order-1", named, "--json"))
    assert (entry["state"], entry["value"]) == ("rewarded", 1.0)
    assert entry["request"]["rows"] == [[1.0, 0.0], [0.0, 1.0]]
    assert "no record of nobody" in said(capsys, "show", "nobody", named, code=1)
    assert (as_bytes(used.journal), store.describe()) == (records, description)


def test_verify_and_export_read_page_by_page(
    used: Bandit,
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never more than a page at a time, or a link to check a snapshot, whatever the size."""
    monkeypatch.setattr(pages, "__defaults__", (0, None, 3))
    monkeypatch.setattr(journal_verify, "PAGE", 3)
    limits: list[int] = []
    read = type(used.journal).read

    def noted(journal: Journal, partition: int, after: int, limit: int) -> list[Record]:
        limits.append(limit)
        return read(journal, partition, after, limit)

    monkeypatch.setattr(type(used.journal), "read", noted)
    said(capsys, "verify", named, "--window", "6h")
    said(capsys, "export", named, "-o", tmp_path / "lines")
    assert sum(limit > 3 for limit in limits) <= used.journal.partitions
    assert max(limits) <= LINK
    count = len(limits)
    assert count > 30
    said(capsys, "show", "order-1", named)
    assert limits[count:] == [AT_ONCE]  # found by the index; its subject would be right behind it


@pytest.mark.parametrize("into", ["sqlite", "postgresql"])
def test_a_journal_moves_from_store_to_store(
    used: Bandit,
    named: str,
    dsn: str,
    bandit: str,
    into: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every record with its stamp and its bytes; a bandit continues there."""
    name = f"moved {bandit}"
    place = dsn if into == "postgresql" else f"sqlite:///{tmp_path}/new.db"
    target = f"{place}?bandit={quote(name)}"
    said(capsys, "export", named, "-o", tmp_path / "lines")
    assert f"as bandit {name}, in 2 partitions" in said(
        capsys, "import", tmp_path / "lines", target
    )
    with open_store(place).journal(name) as journal:
        assert as_bytes(journal) == as_bytes(used.journal)
        assert requests_in(journal) == requests_in(used.journal)
        assert sum(map(len, requests_in(journal))) == 30
    with Bandit(policy=UCB, rewards=SIX_HOURS, journal=target) as instance:
        assert instance.digest == used.digest
    assert main(["journal", "import", str(tmp_path / "lines"), target]) == 2
    assert "already" in capsys.readouterr().err


def test_an_import_that_fails_leaves_no_bandit(
    used: Bandit, named: str, address: str, store: Store, tmp_path: Path
) -> None:
    """The name stays free for the next attempt."""
    lines = tmp_path / "lines"
    assert main(["journal", "export", named, "-o", str(lines)]) == 0
    content = lines.read_bytes()
    place = address if store.name == "postgresql" else f"sqlite:///{tmp_path}/new.db"
    target = f"{place}?bandit={quote('whole ' + used.journal.bandit)}"
    lines.write_bytes(content[:-30])
    assert main(["journal", "import", str(lines), target]) == 2
    if store.name == "postgresql":
        names = [description.name for description in store.describe()]
        assert f"whole {used.journal.bandit}" not in names
    else:
        assert not (tmp_path / "new.db").exists()
    lines.write_bytes(content)
    assert main(["journal", "import", str(lines), target]) == 0


def test_which_bandit_must_be_said_where_there_are_several(
    used: Bandit, address: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their names are listed; inspect accepts them all."""
    with store.journal("a second one") as journal:
        journal.append([Void("a", 1)])
    for command in (["verify"], ["export"], ["show", "a"]):
        assert main(["journal", *command, address]) == 2
        error = capsys.readouterr().err
        assert "'a second one', " in error
        assert "add ?bandit=NAME to the address" in error
    bandits = json.loads(said(capsys, "inspect", address, "--json"))["bandits"]
    assert {"a second one", used.journal.bandit} <= {bandit["bandit"] for bandit in bandits}
    assert main(["journal", "verify", f"{address}?bandit=nobody"]) == 2
    assert "has no bandit 'nobody'; known bandits: '" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["csv", "jsonl", "dsjson"])
def test_decisions_come_out_of_every_store(
    used: Bandit, named: str, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line per decision, by partition and time, from a journal in use."""
    lines = said(capsys, "export", named, "--format", format).splitlines()
    count = 1 + 30 if format == "csv" else 30 if format == "jsonl" else 20
    assert len(lines) == count
    if format == "jsonl":
        decisions = {decision["id"]: decision for decision in map(json.loads, lines)}
        assert decisions["order-1"]["value"] == 1.0
        assert decisions["order-0"]["state"] == "pending"
