"""Images and helm take minutes to make: `.ci/image` and `.ci/chart` do, and run what is here."""

from __future__ import annotations

import os

#: By the variable that says that something is there, the tests that need it.
NEEDED = {
    "IMAGES": ["test_compose.py", "test_image.py", "test_upgrade.py"],
    "HELM": ["test_chart.py"],
}
collect_ignore = [
    name for variable, names in NEEDED.items() if variable not in os.environ for name in names
]
