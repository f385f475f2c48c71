"""Check the contents of a wheel and an sdist: a script, not a test file.

``python tests/package_contents.py FOLDER`` reads both from a folder, see .ci/wheel. The wheel must
contain exactly the package and its metadata, and the sdist exactly the files of the repository.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The metadata files of a wheel.
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def tracked() -> set[str]:
    """Return all files of the repository."""
    command = ["git", "ls-files", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    return {name for name in output.decode().split("\0") if name}


def check(package: str, files: set[str], expected: set[str]) -> None:
    """Fail if files are missing or superfluous."""
    missing, extra = sorted(expected - files), sorted(files - expected)
    assert not missing, f"the {package} lacks {missing}"
    assert not extra, f"the {package} must not contain {extra}"
    print(f"{package}: {len(files)} files, as in the repository")


def main() -> None:
    """Check both packages."""
    folder = Path(sys.argv[1])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    files = tracked()
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = next(name for name in names if name.endswith(".dist-info/METADATA")).partition("/")[0]
    package = {name.removeprefix("src/") for name in files if name.startswith("src/belated/")}
    check("wheel", names, package | {f"{info}/{name}" for name in METADATA})
    with tarfile.open(sdist) as archive:
        members = {file.name.partition("/")[2] for file in archive.getmembers() if file.isfile()}
    check("sdist", members, files | {"PKG-INFO"})


if __name__ == "__main__":
    main()
