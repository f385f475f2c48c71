"""`belated simulate`, as it is called."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time

import pytest

from belated import Bernoulli, BlindUCB, delays, environments, simulate
from belated.cli import simulate as command
from belated.cli.main import main
from tests.command_line import Command

said, complaint = Command("simulate").said, Command("simulate").complaint

SMALL = ("--rounds", "60", "--seeds", "3")
GEOMETRIC = ("--delay", "Geometric(mean=10)")


def test_prints_a_short_table(capsys: pytest.CaptureFixture[str]) -> None:
    """What was run, and what it came to; all by default but the delay."""
    lines = said(capsys, *GEOMETRIC, *SMALL).splitlines()
    assert lines[:3] == ["DelayedUCB in fixed under Geometric(mean=10)", "60 rounds, 3 seeds", ""]
    assert lines[3].split() == ["mean", "±", "standard", "error", "least", "most"]
    assert [line.partition("  ")[0] for line in lines[4:]] == [
        "regret",
        "pending at the end",
        "maximum pending",
    ]
    assert max(map(len, lines)) <= 80


def test_is_what_simulate_gives(capsys: pytest.CaptureFixture[str]) -> None:
    """The same policy, problems and seeds, number for number; also with a window."""
    policy = ("--policy", "BlindUCB(alpha=0.5)", "--environment", "users(dim=4, n_arms=3)")
    for window in (None, 5):
        window_options = () if window is None else ("--window", "5")
        report = json.loads(said(capsys, *GEOMETRIC, *SMALL, *policy, *window_options, "--json"))
        for seed, run in enumerate(report["runs"]):
            world = environments.users(seed, dim=4, n_arms=3)
            trace = simulate(
                BlindUCB(4, Bernoulli(), alpha=0.5),
                world,
                delays.Geometric(mean=10),
                horizon=60,
                seed=seed,
                window=window,
            )
            assert run == {
                "seed": seed,
                "regret": float(trace.regret[-1]),
                "pending": int(trace.pending[-1]),
                "most_pending": int(trace.pending.max()),
            }
        assert report["window"] == window


def test_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, sizes, the runs and their mean."""
    report = json.loads(said(capsys, *GEOMETRIC, *SMALL, "--json"))
    assert (report["policy"], report["environment"]) == ("DelayedUCB", "fixed")
    assert (report["delay"], report["rounds"], report["seeds"]) == ("Geometric(mean=10)", 60, 3)
    regrets = [run["regret"] for run in report["runs"]]
    assert report["regret"]["mean"] == pytest.approx(sum(regrets) / 3)
    assert report["regret"]["least"] == min(regrets)
    assert report["regret"]["error"] > 0
    assert report["notes"] == []


def test_the_same_seeds_give_the_same_output(capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for programs, and with draws of the policy's own."""
    for options in ((), ("--json",), ("--policy", "DelayedThompson")):
        assert said(capsys, *GEOMETRIC, *SMALL, *options) == said(
            capsys, *GEOMETRIC, *SMALL, *options
        )


def test_one_seed_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor does it claim one."""
    arguments = (*GEOMETRIC, "--rounds", "30", "--seeds", "1")
    assert "±" not in said(capsys, *arguments)
    assert json.loads(said(capsys, *arguments, "--json"))["regret"]["error"] is None


def test_warnings_are_notes(capsys: pytest.CaptureFixture[str]) -> None:
    """What the library warns of is said once, in words, however many seeds there are."""
    arguments = (
        "--delay",
        "Mixture(never=0.9, base=Constant(0))",
        "--rounds",
        "600",
        "--seeds",
        "2",
    )
    text = said(capsys, *arguments)
    assert text.count("note: ") == 1
    assert "have no reward" in text
    assert "Warning" not in text
    (note,) = json.loads(said(capsys, *arguments, "--json"))["notes"]
    assert "Set a window" in note
    assert "note" not in said(capsys, *arguments, "--window", "50")


def test_says_in_one_line_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name lists the known ones and an example; a bad argument says what is expected."""
    for arguments in (
        ("--delay", "Geometic(mean=100)"),
        ("--delay", "__import__('os')"),
    ):
        line = complaint(capsys, *arguments)
        assert "Exponential, FiniteChain, Geometric" in line
        assert "example: Geometric(mean=100)" in line
    assert "it takes never, base" in complaint(capsys, "--delay", "Mixture(never=0.3)")
    assert "a finite number above 0, got -5" in complaint(capsys, "--delay", "Geometric(mean=-5)")
    assert "did you mean DelayedUCB?" in complaint(capsys, *GEOMETRIC, "--policy", "DelayedUBC")
    assert "known: arms, ball" in complaint(capsys, *GEOMETRIC, "--environment", "mars")
    assert "--delay" in complaint(capsys)
    for option in ("--rounds", "--seeds", "--window"):
        for value in ("0", "-3", "many", "1.5"):
            assert "positive whole number" in complaint(capsys, *GEOMETRIC, f"{option}={value}")


def test_help_ends_with_an_example_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Within 80 columns, with all names."""
    with pytest.raises(SystemExit) as raised:
        main(["simulate", "--help"])
    assert raised.value.code == 0
    text = capsys.readouterr().out
    assert text.rstrip().splitlines()[-2:] == ["example:", f"  {command.EXAMPLE}"]
    assert max(map(len, text.splitlines())) <= 80
    assert "RewardDependent" in text


def test_shows_progress_and_time_left_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line on stderr, which is gone at the end."""
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    ticks = iter(range(10**6))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    assert main(["simulate", *GEOMETRIC, *SMALL]) == 0
    output = screen.getvalue()
    assert "rounds simulated: 60 of 180 (33%), " in output
    assert " s left\x1b[K" in output
    assert output.endswith("\r\x1b[K")


def test_needs_no_extra() -> None:
    """Nothing beyond the base install is imported."""
    extras = ("joblib", "pandas", "tqdm", "matplotlib", "sklearn")
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({extras!r}))\n"
        "from belated.cli.main import main\n"
        f"sys.exit(main(['simulate', *{GEOMETRIC!r}, '--rounds', '20', '--seeds', '1']))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")
