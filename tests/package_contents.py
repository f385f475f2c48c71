"""Checks what a wheel and an sdist contain: a script, not a test file.

``python tests/package_contents.py FOLDER`` looks at the two in a folder, see .ci/wheel. The wheel
has the package as the repository has it, and its metadata; the sdist has the whole repository.
Neither has anything else.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The metadata of a wheel.
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def tracked() -> set[str]:
    """All files of the repository."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return {name for name in listed.decode().split("\0") if name}


def check(what: str, found: set[str], wanted: set[str]) -> None:
    """Say what is missing and what is too much."""
    missing, more = sorted(wanted - found), sorted(found - wanted)
    assert not missing, f"the {what} lacks {missing}"
    assert not more, f"the {what} should not have {more}"
    print(f"{what}: {len(found)} files, as in the repository")


def main() -> None:
    """Look at both."""
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    files = tracked()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = next(name for name in names if name.endswith(".dist-info/METADATA")).partition("/")[0]
    package = {name.removeprefix("src/") for name in files if name.startswith("src/belated/")}
    check("wheel", names, package | {f"{info}/{name}" for name in METADATA})
    with tarfile.open(sdist) as archive:
        members = {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}
    check("sdist", members, files | {"PKG-INFO"})


if __name__ == "__main__":
    main()
