"""The wheel of this repository in an environment of its own, without a package index."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
#: The environment of programs that must import the wheel, and not a clone.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("belated-*.whl")
    return wheel


def install_wheel(wheel: Path, extras: tuple[str, ...], folder: Path) -> Path:
    """Install the wheel with extras into a new environment, and return its folder of programs.

    Dependencies are linked from the environment of the tests. The environment has these only: a
    dependency that the wheel does not declare is missing there.
    """
    run(sys.executable, "-m", "venv", folder)
    programs = folder / "bin"
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for extra in extras:
        link_dependencies("belated", extra, site)
    requirement = f"belated[{','.join(extras)}] @ {wheel.as_uri()}"
    run(programs / "python", "-m", "pip", "install", "--quiet", "--no-index", requirement)
    return programs


def link_dependencies(name: str, extra: str, site: Path) -> None:
    """Link all that a distribution requires into ``site-packages`` of another environment."""
    for line in distribution(name).requires or ():
        required = Requirement(line)
        if required.marker is not None and not required.marker.evaluate({"extra": extra}):
            continue
        installed = distribution(required.name)
        for entry in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
            if not (site / entry).exists():
                (site / entry).symlink_to(Path(str(installed.locate_file(entry))))
        link_dependencies(required.name, "", site)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command that must succeed, and return what it prints."""
    process = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout
