"""`belated journal export` and `import`: the same bytes, the same states, any partitions."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.core.events import (
    Activation,
    Decision,
    Event,
    Opaque,
    Record,
    Reward,
    Settled,
    Void,
    encode,
)
from belated.core.ids import key_of, partition_of
from belated.journals import Journal, MemoryJournal, SQLiteJournal
from belated.journals.chain import Chain
from belated.testing import ManualClock
from tests.integration.used_journals import (
    HOUR,
    IDENTITY,
    START,
    WEEK,
    argument,
    complaint,
    flip,
    fold_of,
    place_of,
    random_journal,
    records_in,
    records_of,
    said,
    told,
    used_journal,
)


def moved(path: Path, partitions: int) -> Path:
    """Export a journal and import it."""
    lines, copy = path.with_suffix(".jsonl"), path.with_name(f"new-{partitions}.db")
    assert main(["journal", "export", argument(path), "-o", str(lines)]) == 0
    options = ["--partitions", str(partitions)]
    assert main(["journal", "import", str(lines), f"{argument(copy)}?bandit=new", *options]) == 0
    return copy


class TestExportAndImport:
    @pytest.mark.parametrize("partitions", [1, 2, 4])
    def test_gives_back_the_same_bytes(self, partitions: int, tmp_path: Path) -> None:
        """Into as many partitions: every record with its stamp, position and bytes."""
        for seed in range(5):
            path = random_journal(tmp_path / f"{seed}.db", seed, partitions)
            events: list[Event | Opaque] = [
                Opaque(bytes([99]) + b"\x00\xff from a newer release"),
                Reward("odd", -(1 << 62), float("nan")),
                Reward("odd", 1, float("-inf"), "part \u2028\u0000", 5),
                Decision("odd", 0, 1 << 62, 0, np.array([1e-45, -1e8, 1]).astype("f4"), 0, 1, 1),
                Decision("odd", 0, "", 0, np.zeros(3, "f4"), 5e-324, 5e-324, 1),
                Decision("odd", 0, 0, 0, np.ones(3, "f4"), -0.0, 1.0, 1, means=(0.5, -1e12)),
            ]
            with SQLiteJournal(path, bandit="offers") as journal:
                for event in events:
                    partition = 0 if isinstance(event, Opaque) else key_partition(event, partitions)
                    journal.import_records([Record(partition, 0, START + 10**15, event)])
            copy = moved(path, partitions)
            assert as_bytes(records_in(copy, "new")) == as_bytes(records_in(path))
            copy.unlink()

    @pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 4), (4, 1)])
    def test_requests_stay_with_their_decisions(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Into any number of partitions."""
        path, x = tmp_path / "offers.db", np.ones(3, np.float32)
        decisions = [Decision(f"{n}", START, 0, 0, x, 0.5, 1.0, 0) for n in range(20)]
        requests = {n: f"of {n}".encode() for n in range(0, 20, 2)}
        with SQLiteJournal(path, bandit="offers", partitions=before) as journal:
            journal.append(
                [*decisions, *(Settled(p, START) for p in range(before))], requests=requests
            )
        copies = {}
        with SQLiteJournal(moved(path, after), bandit="new") as journal:
            for partition in range(after):
                for record in journal.read(partition, 0, 100):
                    if isinstance(record.event, Decision):
                        blobs = journal.requests(partition, [record.position])
                        copies[int(record.event.id)] = blobs.get(record.position)
        assert copies == {n: requests.get(n) for n in range(20)}

    @pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 4), (2, 4), (2, 1), (4, 1), (4, 2)])
    def test_gives_back_the_same_states(self, before: int, after: int, tmp_path: Path) -> None:
        """Into other partitions: once a bandit has settled everything, the states are equal."""
        path = tmp_path / "offers.db"
        digest = used_journal(path, before)
        old, new = records_in(path), records_in(moved(path, after), "new")
        assert len(new) == after
        rewards = Explicit(timedelta(hours=6))
        assert fold_of(old, rewards).digest == digest
        assert fold_of(new, rewards).digest == digest
        assert told(new) == told(old)

    @pytest.mark.parametrize(("before", "after"), [(1, 4), (2, 4), (4, 4)])
    def test_more_partitions_are_the_same_at_any_time(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Random events, settled or not, with and without retention: equal at every moment."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, before)
            old, new = records_in(path), records_in(moved(path, after), "new")
            path.with_name(f"new-{after}.db").unlink()
            end = max(record.recorded for records in old for record in records)
            for moment in np.linspace(START, end, 7).astype(int).tolist():
                for retention in (None, 2 * HOUR):
                    old_fold, new_fold = (
                        fold_of(records, WEEK, moment, retention) for records in (old, new)
                    )
                    assert old_fold.digest == new_fold.digest
                    assert old_fold.counts == new_fold.counts

    @pytest.mark.parametrize(("before", "after"), [(2, 1), (4, 1), (4, 2), (8, 2)])
    def test_fewer_partitions_are_settled_as_far_as_the_furthest(
        self, before: int, after: int, tmp_path: Path
    ) -> None:
        """Random events: the states are those of the old journal, settled alike."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, before)
            old, new = records_in(path), records_in(moved(path, after), "new")
            path.with_name(f"new-{after}.db").unlink()
            watermarks = [watermark(records) for records in old]
            with MemoryJournal(partitions=before) as journal:
                for records in old:
                    journal.import_records(records)
                journal.append(
                    [Settled(p, max(watermarks[p % after :: after])) for p in range(before)]
                )
                assert fold_of(new).digest == fold_of(records_of(journal)).digest

    def test_fewer_partitions_settle_nothing_early(self, tmp_path: Path) -> None:
        """Before the end, no decision is settled that was not settled in the old journal."""
        for seed in range(4):
            path = random_journal(tmp_path / f"{seed}.db", seed, 4)
            old, new = records_in(path), records_in(moved(path, 1), "new")
            path.with_name("new-1.db").unlink()
            end = max(record.recorded for records in old for record in records)
            count = 0
            for moment in np.linspace(START, end - 1, 9).astype(int).tolist():
                old_fold, new_fold = fold_of(old, until=moment), fold_of(new, until=moment)
                for record in (record for records in old for record in records):
                    if isinstance(record.event, Decision):
                        id = record.event.id
                        entry = new_fold.ledgers[0].entry(id)
                        old_entry = old_fold.ledgers[partition_of(key_of(id), 4)].entry(id)
                        if entry is not None and entry.state in ("censored", "voided"):
                            assert old_entry is not None
                            assert old_entry.state == entry.state
                            count += entry.state == "censored"
            assert count > 0

    def test_carries_what_the_bandit_is(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Identity, name and partitions are in the first line; a bandit continues from there."""
        path = tmp_path / "offers.db"
        digest = used_journal(path, 2)
        said(capsys, "export", path, "-o", tmp_path / "lines")
        header = json.loads((tmp_path / "lines").read_text().splitlines()[0])
        assert header == {
            "kind": "journal",
            "format": 2,
            "bandit": "offers",
            "partitions": 2,
            "identity": IDENTITY,
        }
        said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
        (info,) = json.loads(said(capsys, "inspect", tmp_path / "new.db", "--json"))["bandits"]
        assert (info["bandit"], info["partitions"], info["identity"]) == ("offers", 2, IDENTITY)
        with Bandit(
            policy=DelayedUCB(3, Bernoulli()),
            rewards=Explicit(timedelta(hours=6)),
            journal=SQLiteJournal(tmp_path / "new.db", bandit="offers"),
            clock=ManualClock(START),
        ) as bandit:
            assert bandit.digest == digest

    def test_a_line_says_it_all(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The fields of a record, by their names."""
        path = tmp_path / "offers.db"
        x = np.array([0.1, -0.0], dtype=np.float32)
        with SQLiteJournal(path, bandit="offers", clock=ManualClock(START)) as journal:
            journal.append([Decision("a", 5, "blue", 1, x, 0.1, 0.2, 7), Settled(0, 9)])
        lines = said(capsys, "export", path).splitlines()
        assert lines[1] == (
            '{"kind":"decision","partition":0,"position":1,"recorded":1700000000000000,"id":"a",'
            '"at":5,"action":"blue","index":1,"x":[0.10000000149011612,-0.0],"mean":0.1,'
            '"propensity":0.2,"model":7}'
        )
        assert json.loads(lines[2]) == {
            "kind": "settled",
            "partition": 0,
            "position": 2,
            "recorded": START,
            "until": 9,
        }
        end = json.loads(lines[3])
        head = json.loads(said(capsys, "verify", path, "--json"))["head"]
        assert end == {"kind": "end", "records": 2, "head": head}

    def test_an_empty_journal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing is transferred, and the result is a journal."""
        path = tmp_path / "offers.db"
        SQLiteJournal(path, bandit="offers", partitions=2).close()
        said(capsys, "export", path, "-o", tmp_path / "lines")
        assert "0 records" in said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
        assert records_in(tmp_path / "new.db") == [[], []]

    def test_a_wrong_line_is_named_and_nothing_is_left(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Truncated, changed, repeated, out of order, impossible: rejected as a whole."""
        path = random_journal(tmp_path / "offers.db", 2, 2, count=40)
        head, *lines, end = said(capsys, "export", path).splitlines()
        decision = next(n for n, line in enumerate(lines) if '"decision"' in line)
        reward = next(n for n, line in enumerate(lines) if '"reward"' in line)
        void = '{"kind":"void","partition":0,"position":900,"recorded":%s,"id":"a","at":5}'

        def altered(number: int, **fields: object) -> str:
            return json.dumps(json.loads(lines[number]) | fields)

        cases: dict[str, list[str]] = {
            "is truncated": [head, *lines],
            "has 39 records": [head, *lines[1:], end],
            "line 4": [head, *lines[:2], "{", *lines[2:], end],
            "is out of order": [head, *lines[:3], *lines[2:], end],
            "recorded before": [head, *lines, void % 5, end],
            "after the end": [head, *lines, end, end],
            "partition 2 does not exist": [head, altered(0, partition=2), *lines[1:], end],
            "invalid value": [head, altered(0, kind="nonsense"), *lines[1:], end],
            "too large": [head, altered(decision, x=[1e300]), *lines[decision + 1 :], end],
            "2**64 - 1": [head, altered(decision, model=1 << 70), *lines[decision + 1 :], end],
            "`int` <=": [head, *lines, void % (1 << 63), end],
            "is missing": [head, altered(reward, value=None), *lines[reward + 1 :], end],
            "unknown field": [head, altered(reward, note=1), *lines[reward + 1 :], end],
            "upgrade belated": [head.replace('"format":2', '"format":3'), *lines, end],
            "not an exported journal": [*lines, end],
            "was modified after the export": [
                head,
                *lines[:reward],
                altered(reward, value=0.123),
                *lines[reward + 1 :],
                end,
            ],
            "power of two": [head.replace('"partitions":2', '"partitions":3'), *lines, end],
        }
        for message, text in cases.items():
            (tmp_path / "lines").write_text("\n".join(text) + "\n")
            error = complaint(capsys, "import", tmp_path / "lines", tmp_path / "new.db")
            assert message.lower() in error.lower()
            assert sorted(file.name for file in tmp_path.iterdir()) == ["lines", "offers.db"]
        (tmp_path / "lines").write_text("\n".join([head, *lines, end]) + "\n")
        refusal = complaint(
            capsys, "import", tmp_path / "lines", tmp_path / "new.db", "--partitions", 3
        )
        assert "power of two" in refusal
        said(capsys, "import", tmp_path / "lines", tmp_path / "new.db")

    def test_a_damaged_journal_is_not_exported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The damaged record is named, and no partial file is left."""
        path = random_journal(tmp_path / "offers.db", 2, 1)
        flip(path, place_of(0, 5))
        text = complaint(capsys, "export", path, "-o", tmp_path / "lines")
        assert "partition 0, position 5" in text
        assert not (tmp_path / "lines").exists()

    def test_an_unknown_event_is_merged_but_not_split(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """This release cannot tell which of more partitions it belongs to."""
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers", partitions=4) as journal:
            journal.import_records([Record(3, 0, START, Opaque(bytes([99]) + b"?"))])
        partitions = records_in(moved(path, 2), "new")
        assert [len(records) for records in partitions] == [0, 1]
        lines, copy = path.with_suffix(".jsonl"), tmp_path / "more.db"
        text = complaint(capsys, "import", lines, copy, "--partitions", 8)
        assert "partition 3, position 1" in text
        assert not copy.exists()

    def test_while_a_bandit_goes_on(self, tmp_path: Path) -> None:
        """What is appended after the start of the export is not included."""
        path = random_journal(tmp_path / "offers.db", 3, 2)
        with SQLiteJournal(path, bandit="offers") as journal:
            records = as_bytes(records_of(journal))
            lines = exported_slowly(journal)
            head = [next(lines) for _ in range(3)]
            journal.append([Void("late", 5), Void("later", 5)])
            tail = list(lines)
        assert len(head) + len(tail) == sum(map(len, records))

    def test_a_hundred_thousand_events_in_seconds(self, tmp_path: Path) -> None:
        """Export and import of 10^5 events take less than 30 s of CPU."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(50_000, 8)).astype(np.float32)
        path = tmp_path / "offers.db"
        with SQLiteJournal(path, bandit="offers", clock=ManualClock(START)) as journal:
            for start in range(0, 50_000, 10_000):
                events: list[Event] = []
                for n in range(start, start + 10_000):
                    events.append(Decision(f"{n}", START + n, n % 9, 0, x[n], 0.5, 0.25, n))
                    events.append(Reward(f"{n}", START + n, 1.0))
                journal.append(events)
        cpu_start = time.process_time()
        copy = moved(path, 4)
        assert time.process_time() - cpu_start < 30
        assert sum(map(len, records_in(copy, "new"))) == 100_000


def exported_slowly(journal: Journal) -> Iterator[Record]:
    """Return the records that an export would write, one by one."""
    from belated.cli.journal.export import in_order

    ends = [journal.end(p) for p in range(journal.partitions)]
    return in_order(journal, ends, [Chain() for _ in ends])


def key_partition(event: Event, partitions: int) -> int:
    """Return the partition of an event of a decision."""
    assert isinstance(event, Decision | Activation | Reward | Void)
    return partition_of(key_of(event.id), partitions)


def as_bytes(partitions: list[list[Record]]) -> list[list[tuple[int, int, bytes]]]:
    """Return records as position, stamp and bytes."""
    return [
        [(record.position, record.recorded, encode(record.event)) for record in records]
        for records in partitions
    ]


def watermark(records: list[Record]) -> int:
    """Return the time to which a partition was settled."""
    return max(
        (
            min(record.event.until, record.recorded)
            for record in records
            if isinstance(record.event, Settled)
        ),
        default=0,
    )
