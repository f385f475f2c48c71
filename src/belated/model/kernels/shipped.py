"""Machine code that may only be read, as in a container: numba alone would pass it over."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from numba.core import caching, config as numba_config

config: Any = numba_config


class ReadOnlyLocator(caching.UserProvidedCacheLocator):
    """Finds kernels under ``NUMBA_CACHE_DIR`` without trying to write there."""

    def ensure_cache_path(self) -> None:
        """Raise an error if there is nothing to read: numba then looks elsewhere."""
        os.listdir(self.get_cache_path())  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def reading_shipped() -> Iterator[None]:
    """Let what is decorated meanwhile use such a folder, if ``NUMBA_CACHE_DIR`` is one."""
    folder = config.CACHE_DIR
    writable = not os.path.isdir(folder) or os.access(folder, os.W_OK)
    if writable or getattr(config, "CACHE_LOCATOR_CLASSES", None) != "":  # from numba 0.62 on
        yield
        return
    ours = f"{__name__}.{ReadOnlyLocator.__name__}"
    config.CACHE_LOCATOR_CLASSES = f"{ours},InTreeCacheLocator,UserWideCacheLocator"
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES = ""
