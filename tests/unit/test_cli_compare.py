"""`belated compare`, as it is called."""

from __future__ import annotations

import csv
import io
import json
import math
import struct
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from belated.cli import compare as command
from belated.cli.compare import spread_out
from belated.cli.main import main
from tests.command_line import Command

said, complaint = Command("compare").said, Command("compare").complaint

pytest.importorskip("joblib")
pytest.importorskip("pandas")

SMALL = ("--rounds", "60", "--seeds", "3", "--jobs", "1")
DELAY = ("--delay", "Geometric(mean=10)")
TWO = ("--policy", "DelayedUCB", "BlindUCB")


class TestTable:
    def test_a_block_for_each_environment_and_delay(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In the order of the command line, policies too; the first has no difference."""
        text = said(
            capsys, "--policy", "Uniform", "DelayedUCB(alpha=0.5)", "--environment", "users",
            "fixed", "--delay", "Batched(20)", "--delay", "Constant(0)", *SMALL,
        )  # fmt: skip
        head, *blocks, foot = text.rstrip().split("\n\n")
        assert head == "regret after 60 rounds: mean ± standard error of 3 seeds"
        assert [block.splitlines()[0] for block in blocks] == [
            "users under Batched(20)",
            "users under Constant(0)",
            "fixed under Batched(20)",
            "fixed under Constant(0)",
        ]
        for block in blocks:
            _, columns, first, second = block.splitlines()
            assert columns.split() == ["policy", "regret", "pending", "difference", "t"]
            assert first.split()[0] == "Uniform"
            assert first.count("±") == 1
            assert second.split()[0] == "DelayedUCB(alpha=0.5)"
            assert second.count("±") == 2
        assert "from the regret of Uniform" in foot
        assert "beyond ±4.3" in " ".join(foot.split())
        assert max(map(len, text.splitlines())) <= 80

    def test_what_a_missing_reward_means(self, capsys: pytest.CaptureFixture[str]) -> None:
        """In seconds, of which a round has one."""
        explicit = said(capsys, *TWO, *DELAY, *SMALL)
        conversions = said(capsys, *TWO, *DELAY, *SMALL, "--rewards", "ConversionsOnly('40s')")
        assert explicit != conversions
        assert "ConversionsOnly" in complaint(capsys, *DELAY, "--rewards", "Conversions('40s')")

    def test_differences_are_paired(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Mean, error and t are those of the differences under each seed."""
        file = tmp_path / "runs.csv"
        report = json.loads(said(capsys, *DELAY, *TWO, *SMALL, "--json", "--csv", str(file)))
        first, second = report["results"]
        assert (report["first"], first["difference"]) == ("DelayedUCB", None)
        with file.open(newline="") as lines:
            final_rows = [row for row in csv.DictReader(lines) if row["round"] == "60"]
        by_seed: dict[str, dict[str, float]] = {}
        for row in final_rows:
            by_seed.setdefault(row["seed"], {})[row["policy"]] = float(row["regret"])
        differences = [run["BlindUCB"] - run["DelayedUCB"] for run in by_seed.values()]
        mean = sum(differences) / 3
        error = math.sqrt(sum((difference - mean) ** 2 for difference in differences) / 2 / 3)
        assert second["difference"]["mean"] == pytest.approx(mean)
        assert second["difference"]["error"] == pytest.approx(error)
        assert second["difference"]["t"] == pytest.approx(mean / error)

    def test_agrees_with_simulate(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The other command gives the same regret for the same seeds."""
        report = json.loads(said(capsys, *DELAY, *TWO, *SMALL, "--json"))
        main(["simulate", *DELAY, "--policy", "BlindUCB", *SMALL[:4], "--json"])
        single = json.loads(capsys.readouterr().out)
        assert report["results"][1]["regret"] == pytest.approx(single["regret"])

    def test_the_same_seeds_give_the_same_output(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """The table, the document and the file, byte for byte."""
        files = [tmp_path / "one.csv", tmp_path / "other.csv"]
        texts = [said(capsys, *DELAY, *TWO, *SMALL, "--csv", str(file)) for file in files]
        assert texts[0] == texts[1]
        assert files[0].read_bytes() == files[1].read_bytes()
        documents = [said(capsys, *DELAY, *TWO, *SMALL, "--json") for _ in range(2)]
        assert documents[0] == documents[1]

    def test_one_seed_and_one_policy(self, capsys: pytest.CaptureFixture[str]) -> None:
        """No errors are claimed, and nothing is compared with itself."""
        options = ("--rounds", "30", "--seeds", "1", "--jobs", "1")
        text = said(capsys, *DELAY, *TWO, *options)
        assert "standard error" not in text
        assert "increase --seeds" in " ".join(text.split())
        assert (
            json.loads(said(capsys, *DELAY, *TWO, *options, "--json"))["results"][1]["difference"][
                "t"
            ]
            is None
        )
        output = said(capsys, *DELAY, "--policy", "Uniform", *options)
        assert "difference" not in output

    def test_lists_that_begin_alike_are_told_apart(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Labels are cut, but never the same."""
        prefix = "0, 0, 0, 0, 0, 0"
        text = said(
            capsys, *TWO, "--delay", f"Empirical([{prefix}, 1])", f"Empirical([{prefix}, 9])",
            "--rounds", "20", "--seeds", "2", "--jobs", "1",
        )  # fmt: skip
        assert f"Empirical([{prefix}, … 7 in all])\n" in text
        assert f"Empirical([{prefix}, … 7 in all]) #2\n" in text


class TestFiles:
    def test_csv_holds_all_runs(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """A row for each run at each of fifty rounds."""
        file = tmp_path / "runs.csv"
        said(capsys, *DELAY, *TWO, "--rounds", "100", "--seeds", "2", "--jobs", "1",
             "--csv", str(file))  # fmt: skip
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert list(rows[0]) == [
            "policy", "environment", "delay", "seed", "round", "regret", "pending",
        ]  # fmt: skip
        assert len(rows) == 2 * 2 * 50
        assert {row["delay"] for row in rows} == {"Geometric(mean=10)"}
        assert {int(row["round"]) for row in rows} == set(range(2, 101, 2))

    def test_goes_on_from_a_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """Runs that are there are not repeated."""
        file = tmp_path / "runs.jsonl"
        first = said(capsys, *DELAY, *TWO, *SMALL, "--resume", str(file))
        assert len(file.read_text().splitlines()) == 6
        assert said(capsys, *DELAY, *TWO, *SMALL, "--resume", str(file)) == first
        assert len(file.read_text().splitlines()) == 6

    def test_draws_a_png_1600_pixels_wide(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """With one panel or many, long names, and more policies than colours."""
        pytest.importorskip("matplotlib")
        options = (
            "Uniform", "DelayedUCB", "DelayedThompson", "BlindUCB", "BlindThompson", "Greedy",
            "EpsilonGreedy", "WaitForWindow(window=30, alpha=0.5, floor=0.25)",
        )  # fmt: skip
        tiny = ("--rounds", "12", "--seeds", "2", "--jobs", "1")
        for name, arguments in {
            "one.png": (*DELAY, *TWO, *tiny),
            "three.png": (*DELAY, "Constant(1)", "Uniform(3)", *TWO, *tiny),
            "many.png": (
                *DELAY,
                "Constant(1)",
                "Uniform(3)",
                "Batched(5)",
                "--policy",
                *options,
                *tiny,
            ),
            "seed.png": (*DELAY, *TWO, "--rounds", "12", "--seeds", "1", "--jobs", "1"),
        }.items():
            file = tmp_path / name
            said(capsys, *arguments, "--figure", str(file))
            data = file.read_bytes()
            assert data.startswith(b"\x89PNG\r\n\x1a\n")
            width, height = struct.unpack(">II", data[16:24])
            assert width == 1600
            assert 700 < height < 4000

    def test_draws_the_same_svg_again(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Byte for byte; the table on stdout is the same with and without a picture."""
        pytest.importorskip("matplotlib")
        files = [tmp_path / "one.svg", tmp_path / "other.svg"]
        texts = [said(capsys, *DELAY, *TWO, *SMALL, "--figure", str(file)) for file in files]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert b"<svg" in files[0].read_bytes()
        assert texts[0] == texts[1] == said(capsys, *DELAY, *TWO, *SMALL)

    def test_labels_never_overlap(self) -> None:
        """However close the curves end, and within the panel as long as there is room."""
        for ends in ([0.5] * 5, [0.0, 0.01, 0.5, 0.99, 1.0], [1.0] * 4, [0.2, 0.1, 0.9, 0.15]):
            heights = [0.12, 0.2, 0.12, 0.2, 0.12][: len(ends)]
            places = spread_out(ends, heights)
            bands = sorted(
                (place - 0.5 * height, place + 0.5 * height)
                for place, height in zip(places.tolist(), heights, strict=True)
            )
            assert bands[0][0] >= -1e-9
            assert bands[-1][1] <= 1 + 1e-9
            for (_, top), (bottom, _) in pairwise(bands):
                assert bottom >= top - 1e-9


class TestRefusals:
    def test_says_in_one_line_what_is_wrong(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Before anything is run."""
        assert "valid delay: unknown name Geometic; did you mean Geometric?" in complaint(
            capsys, "--delay", "Geometic(mean=100)"
        )
        assert "known: Batched" in complaint(capsys, "--delay", "__import__('os')")
        assert "Mixture" in complaint(capsys, "--delay", "Mixture(never=0.3)")
        assert "did you mean BlindUCB?" in complaint(capsys, *DELAY, "--policy", "BlindUBC")
        assert "more than once" in complaint(capsys, *DELAY, "--policy", "Uniform", "Uniform()")
        assert "required" in complaint(capsys)
        assert "not a positive whole number" in complaint(capsys, *DELAY, "--jobs", "0")
        for option in ("--figure", "--csv", "--resume"):
            target = str(tmp_path / "none" / "file.png")
            assert "no such folder" in complaint(capsys, *DELAY, option, target)
        assert "is a folder" in complaint(capsys, *DELAY, "--csv", str(tmp_path))
        assert list(tmp_path.iterdir()) == []

    def test_the_name_of_a_picture_says_its_kind(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Others are refused at once."""
        assert ".png, .svg, .pdf" in complaint(capsys, *DELAY, "--figure", "regret.docx")

    @pytest.mark.parametrize("module", ["joblib", "pandas", "tqdm", "matplotlib"])
    def test_says_what_to_install(
        self, module: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In one sentence; matplotlib is asked for only where a picture is."""
        monkeypatch.setitem(sys.modules, module, None)
        feature = "--figure" if module == "matplotlib" else "belated compare"
        clone = "or in a clone pip install '.[experiments]'"
        expected = (
            f"belated: {feature} needs an extra: pip install 'belated[experiments]', {clone}\n"
        )
        assert complaint(capsys, *DELAY, *SMALL, "--figure", "regret.png") == expected
        if module == "matplotlib":
            said(capsys, *DELAY, *TWO, *SMALL)

    def test_help_ends_with_an_example(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Within 80 columns, with all names."""
        with pytest.raises(SystemExit) as raised:
            main(["compare", "--help"])
        assert raised.value.code == 0
        text = capsys.readouterr().out
        assert text.rstrip().splitlines()[-2:] == ["example:", f"  {command.EXAMPLE}"]
        assert max(map(len, text.splitlines())) <= 80
        assert "RewardDependent" in text

    def test_shows_a_bar_on_a_terminal_only(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With the time left, on stderr."""
        screen = io.StringIO()
        monkeypatch.setattr(screen, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", screen)
        assert main(["compare", *DELAY, *TWO, *SMALL, "--json"]) == 0
        assert "6/6" in screen.getvalue()
        json.loads(capsys.readouterr().out)
