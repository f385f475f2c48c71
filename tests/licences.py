"""Check the licenses of all dependencies of the image: a script, not a test file.

``python tests/licences.py licences.json`` reads the list that ``nox -s release`` writes. All
licenses must allow use in a program with another license.
"""

import json
import re
import sys
from pathlib import Path

PERMISSIVE = re.compile(
    r"Apache|BSD|MIT\b|ISC|PSF|Python Software Foundation|Zlib|CC0|Unlicense|MPL|Mozilla|LGPL"
)
#: Tools in every environment.
TOOLS = {"pip", "setuptools", "wheel"}


def main() -> None:
    """Print each license, and fail if one is not known to be permissive."""
    packages = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    unknown = []
    for package in sorted(packages, key=lambda package: str(package["Name"]).lower()):
        if package["Name"] in TOOLS:
            continue
        print(f"{package['Name']} {package['Version']}: {package['License']}")
        if not PERMISSIVE.search(package["License"]):
            unknown.append(package["Name"])
    assert not unknown, f"check the licenses of {unknown}"


if __name__ == "__main__":
    main()
