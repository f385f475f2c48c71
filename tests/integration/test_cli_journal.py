import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from belated import Bernoulli, Gaussian, Poisson
from belated.cli.main import JOURNAL, main
from belated.core.events import Void
from belated.exceptions import InvalidInput
from belated.expressions import family_in
from belated.journals import SQLiteJournal
from belated.model.families import Family
from tests.integration.damage import meddle_file
from tests.integration.used_journals import (
    argument,
    complaint,
    flip,
    place_of,
    random_journal,
    records_in,
    said,
    used_journal,
)


def spawned(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a separate process."""
    command = [sys.executable, "-m", "belated", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class TestCommand:
    def test_runs_as_a_module(self, tmp_path: Path) -> None:
        """The main path in real processes: inspect, verify, export, import."""
        digest = used_journal(tmp_path / "offers.db")
        inspect_run = spawned("journal", "inspect", "sqlite:///offers.db", cwd=tmp_path)
        assert inspect_run.returncode == 0
        assert "Bernoulli()" in inspect_run.stdout
        export_run = spawned("journal", "export", "sqlite:///offers.db", cwd=tmp_path)
        import_run = spawned(
            "journal", "import", "-", "sqlite:///new.db", cwd=tmp_path, input=export_run.stdout
        )
        assert (import_run.returncode, import_run.stderr) == (0, "")
        verify_run = spawned(
            "journal", "verify", "sqlite:///new.db", "--window", "6h", cwd=tmp_path
        )
        assert verify_run.returncode == 0
        assert digest in verify_run.stdout
        assert (inspect_run.stderr, export_run.stderr, verify_run.stderr) == ("", "", "")

    def test_stops_quietly_when_nobody_reads(self, tmp_path: Path) -> None:
        """`export | head -1` ends without a traceback."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=2_000)
        command = [sys.executable, "-m", "belated", "journal", "export", argument(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait() == 1

    @pytest.mark.parametrize("command", JOURNAL)
    def test_help_ends_with_an_example(
        self, command: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Every command has an example, within 80 columns."""
        name = command.__name__.rpartition(".")[2].rstrip("_")
        with pytest.raises(SystemExit) as error:
            main(["journal", name, "--help"])
        assert error.value.code == 0
        text = capsys.readouterr().out
        assert text.rstrip().endswith(f"\nexample:\n  {command.EXAMPLE}")
        assert max(map(len, text.splitlines())) <= 80

    def test_says_in_one_line_what_is_wrong(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A mistake gives one line on stderr and exit code 2, and changes no file."""
        text, folder = tmp_path / "notes.txt", tmp_path / "folder"
        text.write_text("no database, but a text that is long enough to be taken for one\n" * 99)
        folder.mkdir()
        empty_file, foreign_file = tmp_path / "empty.db", tmp_path / "other.db"
        empty_file.touch()
        meddle_file(foreign_file, "CREATE TABLE something (else_ TEXT)")
        journal = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

        assert "no such file" in complaint(capsys, "inspect", tmp_path / "none.db")
        for command in (["inspect"], ["verify"], ["export"]):
            assert main(["journal", *command, str(journal)]) == 0
            error = capsys.readouterr().err
            assert error == f"belated: reading {journal} as sqlite:///{journal}\n"
        assert "this is not a file" in complaint(capsys, "inspect", f"sqlite:///{folder}")
        for path in (text, empty_file, foreign_file):
            for command in (["inspect"], ["verify"], ["export"], ["show", "a"]):
                assert "not a belated journal" in complaint(capsys, *command, f"sqlite:///{path}")
        assert "no bandit 'x'; known bandits: 'offers'" in complaint(
            capsys, "verify", f"sqlite:///{journal}?bandit=x"
        )
        assert "7d, 12h" in complaint(capsys, "verify", journal, "--window", "7 days")
        assert "too long" in complaint(capsys, "verify", journal, "--window", f"{9**20}d")
        assert "--window" in complaint(capsys, "verify", journal, "--default", "0")
        assert "shorter" in complaint(
            capsys, "verify", journal, "--window", "2d", "--retention", "1d"
        )
        assert "the id must be text" in complaint(capsys, "show", "", journal)
        assert "required" in complaint(capsys, "show")
        assert "invalid choice" in complaint(capsys, "nonsense")
        assert "already exists" in complaint(capsys, "export", journal, "-o", str(journal))
        lines = tmp_path / "lines"
        before[lines] = said(capsys, "export", journal).encode()
        lines.write_bytes(before[lines])
        assert "already exists" in complaint(capsys, "import", lines, journal)
        assert "not an exported journal" in complaint(capsys, "import", text, tmp_path / "new.db")
        assert "no such file" in complaint(capsys, "import", "none", tmp_path / "new.db")
        assert "no such folder" in complaint(capsys, "import", lines, tmp_path / "no" / "new.db")

        after = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
        assert after == before

    def test_a_newer_file_is_left_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A journal of a newer release asks for an upgrade."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        meddle_file(path, "PRAGMA user_version = 99")
        assert "upgrade belated" in complaint(capsys, "inspect", path)

    def test_asks_which_bandit(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """If a file holds several bandits, one must be named, and the names are listed."""
        path = random_journal(tmp_path / "offers.db", 0, 1, count=30)
        with SQLiteJournal(path, bandit="news") as journal:
            journal.append([Void("a", 1)])
        for command in ("verify", "export"):
            assert "contains 'news', 'offers': add ?bandit=NAME" in complaint(capsys, command, path)
        assert "add ?bandit=" in complaint(capsys, "show", "a", path)
        assert "1 record imported" not in said(capsys, "verify", f"sqlite:///{path}?bandit=news")
        report = json.loads(said(capsys, "inspect", path, "--json"))
        assert [bandit["bandit"] for bandit in report["bandits"]] == ["news", "offers"]

    def test_families_are_parsed_and_never_run(self) -> None:
        """The name of a family is parsed; nothing else is accepted."""
        families: list[Family] = [
            Bernoulli(),
            Poisson(),
            Gaussian(),
            Gaussian(0.1),
            Gaussian(1e-7),
            Gaussian("estimate"),
        ]
        for family in families:
            assert family_in(repr(family)) == family
        for text in ("", "Binomial()", "Gaussian(variance=-1.0)", "Gaussian(variance=__import__)"):
            with pytest.raises(InvalidInput):
                family_in(text)


class TestInspect:
    def test_shows_what_is_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Identity, records, stamps, kinds and snapshots, for people and for programs."""
        path = tmp_path / "offers.db"
        used_journal(path)
        partitions = records_in(path)
        records = [record for records in partitions for record in records]
        text = said(capsys, "inspect", path)
        assert max(map(len, text.splitlines()[1:])) <= 80
        assert "2023-11-14T22:23:20.000Z" in text
        (summary,) = json.loads(said(capsys, "inspect", path, "--json"))["bandits"]
        assert summary["identity"] == {"family": "Bernoulli()", "dim": "3", "features": ""}
        assert summary["records"] == len(records)
        assert summary["first"] == min(record.recorded for record in records)
        assert summary["last"] == max(record.recorded for record in records)
        assert summary["events"]["decision"] == 150
        assert [part["records"] for part in summary["parts"]] == list(map(len, partitions))
        assert [snapshot["partition"] for snapshot in summary["snapshots"]] == [0, 1]
        for snapshot in summary["snapshots"]:
            assert snapshot["bytes"] > 1000
            assert (
                0
                < snapshot["position"]
                == len(partitions[snapshot["partition"]]) - (snapshot["behind"])
            )

    def test_an_empty_journal(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An empty journal is no error."""
        path = tmp_path / "offers.db"
        SQLiteJournal(path, bandit="offers").close()
        assert "no bandit has used this journal yet" in said(capsys, "inspect", path)
        with sqlite3.connect(path) as connection:  # looking has stored no identity
            query = "SELECT value FROM cell WHERE name = 'bandit/offers'"
            ((value,),) = connection.execute(query).fetchall()
            assert "identity" not in json.loads(value)
        connection.close()

    def test_shows_what_is_left_of_a_damaged_one(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The damaged place is named; the other partitions are shown."""
        path = random_journal(tmp_path / "offers.db", 1, 2)
        flip(path, place_of(1, 7))
        assert "DAMAGED" in said(capsys, "inspect", path, code=1)
        report = json.loads(said(capsys, "inspect", path, "--json", code=1))
        first, second = report["bandits"][0]["parts"]
        assert first["damage"] is None
        assert "partition 1, position 7" in second["damage"]
