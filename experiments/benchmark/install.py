"""Create a virtual environment for each peer, from the pinned versions in ``requirements/``.

The peers have conflicting dependencies, so each has its own environment ``.environments/<peer>``.

Run: python experiments/benchmark/install.py [mabwiser river ...]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEERS = sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment; belated itself runs in this one."""
    if peer == "belated":
        return Path(sys.executable)
    return HERE / ".environments" / peer / "bin" / "python"


def install(peer: str) -> None:
    uv = [sys.executable, "-m", "uv"]
    python = python_of(peer)
    if not python.exists():
        subprocess.run([*uv, "venv", "--quiet", python.parents[1]], check=True)
    pins = HERE / "requirements" / f"{peer}.txt"
    subprocess.run([*uv, "pip", "install", "--quiet", "-p", python, "-r", pins], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=PEERS)
    for peer in parser.parse_args().peers:
        print(peer)
        install(peer)


if __name__ == "__main__":
    main()
