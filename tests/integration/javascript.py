"""JavaScript packages for tests, and pages that import them."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


def node_modules(folder: Path) -> Path:
    """Return the packages that a folder needs; skip if they are not installed, except in CI."""
    variable = f"{folder.name.upper()}_JS"
    installed = os.environ.get(variable)
    if installed is None or shutil.which("node") is None:
        message = f"needs Node.js and {variable}=$(.ci/npm {folder})"
        if "CI" in os.environ:
            pytest.fail(message)
        pytest.skip(message)
    return Path(installed) / "node_modules"


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """Serve the files of a folder; yields their origin."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
