"""Checks the licences of all dependencies of the image: a script, not a test file.

``python tests/licences.py licences.json`` reads what ``nox -s release`` has listed. All must allow
use in a program under another licence.
"""

import json
import re
import sys
from pathlib import Path

PERMISSIVE = re.compile(
    r"Apache|BSD|MIT\b|ISC|PSF|Python Software Foundation|Zlib|CC0|Unlicense|MPL|Mozilla|LGPL"
)
#: Tools of every environment.
TOOLS = {"pip", "setuptools", "wheel"}


def main() -> None:
    """Say each, and fail if one is not known to allow that."""
    listed = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    wrong = []
    for one in sorted(listed, key=lambda one: str(one["Name"]).lower()):
        if one["Name"] in TOOLS:
            continue
        print(f"{one['Name']} {one['Version']}: {one['License']}")
        if not PERMISSIVE.search(one["License"]):
            wrong.append(one["Name"])
    assert not wrong, f"look at the licences of {wrong}"


if __name__ == "__main__":
    main()
