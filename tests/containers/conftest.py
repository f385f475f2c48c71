"""The image is built by `.ci/image`, which takes minutes and is not among the usual checks."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "IMAGES" in os.environ else ["test_*.py"]
