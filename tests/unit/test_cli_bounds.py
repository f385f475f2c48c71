"""`belated bounds`, as it is called."""

from __future__ import annotations

import io
import json
import math
import shlex
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from belated import theory
from belated.cli import bounds as command
from belated.cli.bounds import read_delays
from belated.cli.main import main
from belated.delays import NEVER, Batched, Empirical, Geometric, expected_missing
from belated.exceptions import InvalidInput
from belated.expressions import as_delay
from tests.command_line import Command

said, complaint = Command("bounds").said, Command("bounds").complaint

GEOMETRIC = ("--delay", "Geometric(mean=100)")
#: One of every kind.
DELAYS = [
    "Geometric(mean=100)",
    "Constant(0)",
    "Constant(NEVER)",
    "Uniform(10)",
    "HalfNormal(scale=50)",
    "Weibull(shape=900, scale=40)",
    "Lomax(shape=0.8, scale=50)",
    "Mixture(never=0.3, base=Geometric(mean=100))",
    "Empirical([0, 0, 1, 1, 2, 3, 5, 8])",
    "Batched(500)",
    "LazyMarkov(0.5, base=Geometric(mean=20))",
    "RegimeSwitch([[0.99, 0.01], [0.03, 0.97]], laws=[Constant(0), Geometric(mean=9)])",
    "RewardDependent(zero_law=Constant(0), one_law=Geometric(mean=400))",
]


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The document it prints."""
    return json.loads(said(capsys, *arguments, "--json"))


def file_of(folder: Path, *lines: object) -> str:
    """A file with these lines."""
    path = folder / "delays.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


class TestTable:
    def test_names_every_bound_and_ends_with_a_plan(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The least first and marked; a dash and a reason for those that do not hold."""
        text = said(capsys, *GEOMETRIC)
        summary, table, reasons, plan = text.rstrip().split("\n\n")
        assert summary.splitlines() == [
            "delay    Geometric(mean=100)",
            "law      mean 100.0, median 69, 95% within 301 rounds",
            "pending  100.0 on average, by round 10,000",
        ]
        _, head, *rows, star = table.splitlines()
        assert head.split() == ["bound", "one", "round", "any", "of", "10,000", "from"]
        assert rows[0].split()[:3] == ["bennett", "125*", "153*"]
        assert star == "  * lowest"
        names = [row.split()[0] for row in rows]
        assert sorted(names) == sorted(
            row.name for row in theory.bounds_for(Geometric(mean=1), horizon=1)
        )
        assert [row.split()[0] for row in rows if "–" in row] == ["hoeffding", "random", "bounded"]
        assert "hoeffding: The bound requires q > 0" in reasons
        assert " ".join(plan.split()) == (
            "Plan for at most 153 pending rewards: at most 5% of runs of 10,000 rounds exceed this."
        )

    @pytest.mark.parametrize("delay", DELAYS)
    def test_every_delay_fits_into_80_columns(
        self, delay: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """And every bound that does not hold has its reason."""
        text = said(capsys, "--delay", delay, "--rounds", "2000", "--delta", "0.001")
        assert max(map(len, text.splitlines())) <= 80
        assert text.count("Plan for at most") == 1
        assert "nan" not in text
        for row in theory.bounds_for(as_delay(delay), horizon=2000):
            assert row.name in text
            assert row.holds or row.why in " ".join(text.split())

    @pytest.mark.parametrize("delay", DELAYS)
    def test_is_what_the_theory_gives(self, delay: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Number for number; the plan is the least maximum, in whole rewards."""
        document = report(capsys, "--delay", delay, "--rounds", "500", "--delta", "0.01")
        bounds = theory.bounds_for(as_delay(delay), horizon=500, delta=0.01)
        assert {row["name"]: row for row in document["bounds"]} == {
            row.name: {
                "name": row.name,
                "value": row.value,
                "maximum": row.maximum,
                "why": row.why,
                "reference": row.reference,
                "holds": row.holds,
            }
            for row in bounds
        }
        assert document["plan"] == math.floor(bounds.best_maximum + 1e-9)
        assert document["best"] == document["bounds"][0]["name"]
        assert math.floor(document["bounds"][0]["maximum"] + 1e-9) == document["plan"]
        assert (document["rounds"], document["delta"], document["file"]) == (500, 0.01, None)

    def test_tells_the_law(self, capsys: pytest.CaptureFixture[str]) -> None:
        """None where something is infinite or not known; never more than half come in time."""
        law = report(capsys, *GEOMETRIC)["law"]
        assert law == {"mean": 100.0, "median": 69, "q95": 301, "never": 0.0}
        lossy = report(capsys, "--delay", "Mixture(never=0.3, base=Constant(4))", "--rounds", "100")
        assert lossy["law"] == {"mean": None, "median": 4, "q95": None, "never": 0.3}
        assert lossy["expected"] == pytest.approx(4 + 0.3 * 95)
        mostly_lost = report(capsys, "--delay", "Mixture(never=0.6, base=Constant(4))")["law"]
        assert (mostly_lost["median"], mostly_lost["q95"]) == (None, None)
        unknown = report(
            capsys, "--delay", "RewardDependent(zero_law=Constant(0), one_law=Uniform(9))"
        )
        assert (unknown["law"], unknown["expected"], unknown["plan"]) == (None, None, 9)

    @pytest.mark.parametrize("delay", DELAYS[:-1])
    def test_quantiles_are_those_of_the_tail(
        self, delay: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """So many come within them, and fewer within a round less."""
        law, process = report(capsys, "--delay", delay, "--rounds", "10")["law"], as_delay(delay)
        for name, share in (("median", 0.5), ("q95", 0.95)):
            k = law[name]
            if k is None:
                assert process.tail(float(NEVER)) > 1 - share
            else:
                assert process.tail(k + 1) <= 1 - share + 1e-9
                assert process.tail(k) > 1 - share - 1e-9

    def test_says_when_a_bound_never_fails(self, capsys: pytest.CaptureFixture[str]) -> None:
        """And when there is none but the number of rounds."""
        assert "Plan for at most 7 pending rewards: there are never more." in said(
            capsys, "--delay", "Constant(7)"
        )
        text = " ".join(said(capsys, "--delay", DELAYS[-1], "--rounds", "300").split())
        assert (
            "Plan for at most 299 pending rewards: no bound is known except the number of rounds"
            in text
        )

    def test_notes_that_lost_rewards_add_up(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Only where some are lost."""
        options = ("--delay", "Mixture(never=0.3, base=Constant(4))")
        assert "note: rewards that never come accumulate" in said(capsys, *options)
        assert "note" not in said(capsys, *GEOMETRIC)

    def test_plans_are_kept_by_runs(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Of 200 runs at most a few come to more, and the mean is what it is said to be."""
        document = report(capsys, "--delay", "Geometric(mean=20)", "--rounds", "500")
        law, maxima, final = Geometric(mean=20), [], []
        for seed in range(200):
            delay = law.sample(500, np.random.default_rng(seed))
            arrival = np.arange(1, 501) + delay
            pending = [t - 1 - int((arrival[: t - 1] <= t - 1).sum()) for t in range(300, 501, 5)]
            maxima.append(max(pending))
            final.append(pending[-1])
        assert np.mean(np.array(maxima) > document["plan"]) <= 0.05
        assert np.mean(final) == pytest.approx(document["expected"], rel=0.05)


class TestFile:
    def test_is_the_law_of_what_was_seen(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Rounded up; what is empty or never came is NEVER."""
        path = file_of(tmp_path, 3, 2.5, "NEVER", "never", "", " 7 ", "1e1", "inf", 0)
        samples = [3, 3, NEVER, NEVER, NEVER, 7, 10, NEVER, 0]
        assert read_delays(path).tolist() == samples
        document = report(capsys, "--file", path, "--rounds", "300")
        bounds = theory.bounds_for(Empirical(samples), horizon=300)
        assert (document["delay"], document["plan"]) == (path, math.floor(bounds.best_maximum))
        assert (document["file"]["delays"], document["file"]["never"]) == (9, 4)
        assert document["expected"] == float(expected_missing(Empirical(samples), 300))
        assert "9 delays, 4 never arrived" in said(capsys, "--file", path)

    def test_reads_the_standard_input(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the file called -."""
        monkeypatch.setattr(sys, "stdin", io.StringIO("\ufeff3\r\n4\r\n5\r\n"))
        text = said(capsys, "--file", "-")
        assert text.startswith("delay     standard input\nobserved  3 delays, 0 never arrived\n")

    @pytest.mark.parametrize("divider", [",", ";", "\t"])
    def test_reads_a_column(self, divider: str, tmp_path: Path) -> None:
        """Whatever divides them; an empty cell never came, and an empty line is no row."""
        lines = [["id", "delay", "note"], ["a", "3", '"x"'], ["b", "", ""], ["c", "4.2", '"y\n"']]
        path = file_of(tmp_path, *(divider.join(line) for line in lines), "")
        assert read_delays(path, "delay").tolist() == [3, NEVER, 5]

    def test_a_column_can_stand_alone(self, tmp_path: Path) -> None:
        """Then an empty line is a reward that never came."""
        assert read_delays(file_of(tmp_path, "delay", 3, "", 4), "delay").tolist() == [3, NEVER, 4]

    def test_tells_both_plans(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """A list of delays does not say whether they depend on one another."""
        samples = Geometric(mean=20).sample(2000, np.random.default_rng(1))
        path = file_of(tmp_path, *samples.tolist())
        document = report(capsys, "--file", path)
        independent, union = (
            theory.bounds_for(Empirical(samples), horizon=10_000)[name].maximum
            for name in ("bennett", "union")
        )
        assert independent is not None
        assert union is not None
        assert document["file"]["independent"] is True
        assert document["plan"] == math.floor(independent)
        assert document["file"]["plan_if_dependent"] == union == samples.max()
        text = " ".join(said(capsys, "--file", path).split())
        assert f"or {samples.max()} if they may not be" in text
        assert "if delays stay as they were." in text

    def test_notices_batches(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """More are out, in the order of the lines, than independent delays would have."""
        samples = Batched(500).sample(3000, np.random.default_rng())
        path = file_of(tmp_path, *samples.tolist())
        document = report(capsys, "--file", path)
        assert document["file"]["most_out"] == document["plan"] == 499
        assert document["file"]["independent"] is False
        rows = {row["name"]: row["holds"] for row in document["bounds"]}
        assert (rows["bennett"], rows["union"], rows["bounded"]) == (False, True, True)
        assert "as in batches" in said(capsys, "--file", path)
        shuffled = np.random.default_rng(0).permutation(samples)
        assert report(capsys, "--file", file_of(tmp_path, *shuffled.tolist()))["file"][
            "independent"
        ]

    @pytest.mark.parametrize(
        ("lines", "why"),
        [
            (["3", "4", "soon"], "line 3: 'soon' is not a delay"),
            (["3", "-1"], "line 2: -1 is below 0"),
            (["nan"], "line 1: 'nan' is not a delay"),
            (["delay", "3"], "line 1: 'delay' is not a delay"),
            (["a,3", "b,4"], "select a column with --column NAME"),
            ([], "contains no delays"),
        ],
    )
    def test_refuses_a_bad_line_by_its_number(
        self, lines: list[str], why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """In one line, with what was expected."""
        assert why in complaint(capsys, "--file", file_of(tmp_path, *lines))

    @pytest.mark.parametrize(
        ("lines", "why"),
        [
            (["id,delay", "a,3", "b,late"], "line 3: 'late' is not a delay"),
            (["id,delay", "a,3", '"b\nc",-2'], "line 4: -2 is below 0"),
            (["id,delay", "a"], "line 2: 1 cells for 2 columns"),
            (["id,wait", "a,3"], "no column 'delay'; its header: id,wait"),
            (["x" * 200_000, "3"], "line 1: field larger than field limit"),
            (["id,delay"], "contains no delays"),
            ([], "no column 'delay'"),
        ],
    )
    def test_refuses_a_bad_row_by_its_line(
        self, lines: list[str], why: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Also where a cell has several lines."""
        path = file_of(tmp_path, *lines)
        assert why in complaint(capsys, "--file", path, "--column", "delay")

    def test_refuses_what_is_no_text(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """And what is not there."""
        path = tmp_path / "delays.bin"
        path.write_bytes(b"\xff\xfe3\x00")
        assert "is not UTF-8 text" in complaint(capsys, "--file", str(path))
        assert "none.txt" in complaint(capsys, "--file", str(tmp_path / "none.txt"))
        with pytest.raises(InvalidInput, match="line 1") as error:
            read_delays(file_of(tmp_path, "x"))
        assert error.value.value == 1


class TestFigure:
    @pytest.mark.parametrize("delay", [*DELAYS[:4], *DELAYS[-2:]])
    def test_draws_a_png_1600_pixels_wide(
        self, delay: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Whatever holds, also where nothing is out or bounds are far beyond the rounds."""
        pytest.importorskip("matplotlib")
        path = tmp_path / "bounds.png"
        text = said(capsys, "--delay", delay, "--rounds", "500", "--figure", str(path))
        assert text == said(capsys, "--delay", delay, "--rounds", "500")
        data = path.read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        assert width == 1600
        assert 300 < height < 1800

    def test_draws_the_same_svg_again(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Byte for byte, also from a file."""
        pytest.importorskip("matplotlib")
        source = file_of(tmp_path, *range(50), "NEVER")
        paths = [tmp_path / "one.svg", tmp_path / "other.svg"]
        for path in paths:
            said(capsys, "--file", source, "--figure", str(path))
        assert paths[0].read_bytes() == paths[1].read_bytes()
        assert b"<svg" in paths[0].read_bytes()

    def test_says_what_to_install(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In one sentence, and only where a picture is asked for."""
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        clone = "or in a clone pip install '.[experiments]'"
        expected = (
            f"belated: --figure needs an extra: pip install 'belated[experiments]', {clone}\n"
        )
        assert complaint(capsys, *GEOMETRIC, "--figure", "bounds.png") == expected
        said(capsys, *GEOMETRIC)


class TestRefusals:
    def test_says_in_one_line_what_is_wrong(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        """Before anything is computed."""
        assert "pass --delay or --file" in complaint(capsys)
        assert "pass one of them" in complaint(capsys, *GEOMETRIC, "--file", "-")
        assert "--column requires --file" in complaint(capsys, *GEOMETRIC, "--column", "delay")
        assert "did you mean Geometric?" in complaint(capsys, "--delay", "Geometic(mean=100)")
        assert "not a positive whole number" in complaint(capsys, *GEOMETRIC, "--rounds", "0")
        assert "at most 10,000,000" in complaint(capsys, *GEOMETRIC, "--rounds", "10_000_001")
        for delta in ("0", "1", "-0.1", "nan", "few"):
            assert "delta" in complaint(capsys, *GEOMETRIC, f"--delta={delta}")
        pytest.importorskip("matplotlib")
        assert ".png, .svg, .pdf" in complaint(capsys, *GEOMETRIC, "--figure", "bounds.docx")
        target = str(tmp_path / "none" / "bounds.png")
        assert "no such folder" in complaint(capsys, *GEOMETRIC, "--figure", target)

    def test_help_ends_with_an_example_that_runs(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Within 80 columns, with all names."""
        with pytest.raises(SystemExit) as raised:
            main(["bounds", "--help"])
        assert raised.value.code == 0
        text = capsys.readouterr().out
        assert text.rstrip().splitlines()[-2:] == ["example:", f"  {command.EXAMPLE}"]
        assert max(map(len, text.splitlines())) <= 80
        assert "RewardDependent" in text
        said(capsys, *shlex.split(command.EXAMPLE)[2:])

    def test_needs_no_extra(self) -> None:
        """Nothing beyond the base install is imported."""
        extras = ("joblib", "pandas", "tqdm", "matplotlib", "sklearn")
        code = (
            "import sys\n"
            f"sys.modules.update(dict.fromkeys({extras!r}))\n"
            "from belated.cli.main import main\n"
            f"sys.exit(main(['bounds', *{GEOMETRIC!r}]))"
        )
        process = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert (process.returncode, process.stderr) == (0, "")
