"""Time from nothing to a first decision, a first decision over HTTP and a first figure.

Builds the wheel, then for each goal creates an environment, installs the wheel with the required
extras from the package index that pip is configured with, without pip's cache, and follows the
README. Prints the seconds of each, including the installation; then the same with the extra
``fast`` and nothing compiled.

Run: python benchmarks/first_hour.py
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: By goal: the extras, the time limit in seconds, and the command to run in the new environment.
GOALS = {
    "first decision": ((), 60, ["quickstart.py"]),
    "first decision over HTTP": (("service",), 90, [str(ROOT / "tests/first_decision.py")]),
    "first picture": (
        ("experiments",),
        60,
        ["-m", "belated", "compare", "--delay", "Batched(500)", "--figure", "regret.png"],
    ),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        build = ["-m", "build", "--wheel", "--no-isolation", "--outdir", folder, str(ROOT)]
        subprocess.run([sys.executable, *build], check=True, stdout=subprocess.DEVNULL)
        [wheel] = Path(folder).glob("*.whl")
        for extra in ((), ("fast",)):
            for goal, (extras, limit, command) in GOALS.items():
                seconds = reach(wheel, (*extras, *extra), command)
                install, whole = seconds
                name = f"{goal}, with [fast]" if extra else goal
                print(f"{name:42} {whole:5.1f} s, {install:.1f} of them to install (goal {limit})")


def reach(wheel: Path, extras: tuple[str, ...], command: list[str]) -> tuple[float, float]:
    """Return the seconds of the installation, and of the command."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
        lines = [
            line[4:] for block in blocks[:2] for line in block.splitlines() if line[:1] in ">."
        ]
        Path(folder, "quickstart.py").write_text("\n".join(lines))
        environment = {
            k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")
        }
        environment["NUMBA_CACHE_DIR"] = f"{folder}/kernels"
        start = time.monotonic()
        venv.create(f"{folder}/venv", with_pip=True)
        python = f"{folder}/venv/bin/python"
        requirement = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", requirement]
        subprocess.run(install, check=True, env=environment)
        installed = time.monotonic() - start
        quiet = subprocess.DEVNULL
        subprocess.run([python, *command], cwd=folder, check=True, env=environment, stdout=quiet)
        return installed, time.monotonic() - start


if __name__ == "__main__":
    main()
