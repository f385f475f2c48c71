"""Check that the tests detect small changes to the code: a script for ``nox -s mutation``.

mutmut applies one small change at a time to the modules listed in ``pyproject.toml``.
``python -m tests.mutation --sample 400`` draws that many of its mutants; the seed is the hash of
the last commit, so that no test was written for the sample. Each is tested by the quick tests that
reach it, and if these pass, by slower ones. The page docs/contributing/mutation.md has the number
of detected mutants, and lists the others; the script fails if they are more than 15 %. An
interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PAGE = Path("docs/contributing/mutation.md")
#: Slow tests by package, for mutants that no quick test detects.
SLOW = {
    "belated.service.access": [
        f"tests/integration/test_service_{name}.py"
        for name in ("browsers", "keys", "rates", "tokens")
    ],
    "belated.evaluation": [
        "tests/integration/test_archive.py",
        "tests/integration/test_foreign_logs.py",
        "tests/laws/test_columns.py",
    ],
    "belated": [
        f"tests/laws/test_{name}.py"
        for name in ("moments", "undone", "ledger", "ledger_pieces", "ledger_learned", "forgetting")
    ],
}
GOAL = 0.85
#: mutmut's exit codes: a test failed, or was stopped because it took many times as long as usual.
KILLED, TIMED_OUT = {1, 3}, {24, 36, 152, 255, -24}
SURVIVED, NO_TESTS = {0}, {5, 33}


def main() -> None:
    """Draw a sample, run it, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=400, help="how many mutants")
    parser.add_argument("--jobs", type=int, default=2, help="how many to run concurrently")
    parser.add_argument("--seed", default=_commit(), help="of the sample")
    options = parser.parse_args()
    _mutmut("run", "--max-children", str(options.jobs), "belated.service.*__mutmut_1")
    names = sorted(_verdicts())  # the run above creates all mutants
    sample = random.Random(options.seed).sample(names, min(options.sample, len(names)))
    known = _verdicts()
    if missing := [name for name in sample if known[name] is None]:
        _mutmut("run", "--max-children", str(options.jobs), *missing)
    verdicts = {name: verdict for name, verdict in _verdicts().items() if name in {*sample}}
    unknown = {*verdicts.values()} - KILLED - TIMED_OUT - SURVIVED - NO_TESTS
    assert not unknown, f"mutmut ended with {unknown}: see `mutmut results`"
    for package, tests in SLOW.items():
        assert not _fail(tests), f"tests for {package} fail without a mutant"
    undetected = [name for name, code in verdicts.items() if code in SURVIVED | NO_TESTS]
    with ThreadPoolExecutor(options.jobs) as pool:  # threads: each only waits for a process
        for name, detected in zip(undetected, pool.map(_fails_slow_tests, undetected), strict=True):
            print(f"{'detected' if detected else 'not detected'} by slow tests: {name}", flush=True)
            if detected:
                verdicts[name] = min(KILLED)
    share = _write(verdicts, len(names), options.seed)
    if share < GOAL:
        sys.exit(f"only {share:.1%} of the mutants fail a test: see {PAGE}")


def _commit() -> str:
    command = ["git", "rev-parse", "--short=8", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _mutmut(*arguments: str) -> None:
    subprocess.run(["mutmut", *arguments], check=True)


def _fails_slow_tests(mutant: str) -> bool:
    return _fail(
        next(tests for package, tests in SLOW.items() if mutant.startswith(package)), mutant
    )


def _fail(tests: list[str], mutant: str = "") -> bool:
    """Return whether a test fails for a mutant; the environment selects it in mutmut's copy."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {"MUTANT_UNDER_TEST": mutant, "PYTHONPATH": "src", "CI": "true"}
    null = subprocess.DEVNULL
    process = subprocess.run(command, check=False, cwd="mutants", env=environment, stdout=null)
    return process.returncode != 0


def _verdicts() -> dict[str, int | None]:
    verdicts: dict[str, int | None] = {}
    for file in Path("mutants").rglob("*.meta"):
        verdicts |= json.loads(file.read_text(encoding="utf-8"))["exit_code_by_key"]
    return verdicts


def _write(found: dict[str, int | None], of: int, seed: str) -> float:
    """Write the page; return the share of detected mutants."""
    survivors = [name for name, code in found.items() if code in SURVIVED | NO_TESTS]
    share = 1.0 - len(survivors) / len(found)
    totals = Counter(map(_module_of, found))
    survived = Counter(map(_module_of, survivors))
    lines = [
        "# Mutation testing",
        "",
        "`nox -s mutation` makes one small change in the code at a time (a *mutant*) and runs the "
        "tests that cover it. `tests/mutation.py` writes this page. Of "
        f"{of:,} mutants, {len(found)} were drawn with the tested commit, {seed}, as the seed: "
        f"**{share:.1%}** fail a test.",
        "",
        "| module | mutants | detected |",
        "|---|---:|---:|",
    ]
    for module, count in sorted(totals.items()):
        lines.append(f"| `{module}` | {count} | {count - survived[module]} |")
    lines += [
        "",
        "## Survivors",
        "",
        "No test detects these mutants. Many are equivalent to the original, or change only a "
        "message or the speed. No test was written for this sample before the run.",
        "",
    ]
    for name in sorted(survivors):
        lines += [f"`{_function_of(name)}`", "", "```diff", *_difference(name), "```", ""]
    PAGE.write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    print("\n".join(lines[2 : 7 + len(totals)]))
    return share


def _module_of(mutant: str) -> str:
    return mutant.rpartition(".")[0]


def _function_of(mutant: str) -> str:
    """Return the dotted name of ``belated.core.rewards.xǁExplicitǁcheck__mutmut_3``."""
    module, _, qualified = mutant.rpartition(".")
    function = qualified.rpartition("__mutmut_")[0]
    if "ǁ" in function:
        function = ".".join(function.split("ǁ")[1:])
    return f"{module}.{function.removeprefix('x_')}"


def _difference(mutant: str) -> list[str]:
    command = ["mutmut", "show", mutant]
    diff = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = [line for line in diff.splitlines() if line[:1] in "+-"]
    return [line[0] + " " + line[1:].strip() for line in lines if line[:3] not in ("+++", "---")]


if __name__ == "__main__":
    main()
