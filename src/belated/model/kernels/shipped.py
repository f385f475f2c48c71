"""Load machine code from a read-only cache, as in a container image, which Numba would ignore."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from numba.core import caching, config as numba_config

config: Any = numba_config


class ReadOnlyLocator(caching.UserProvidedCacheLocator):
    """Finds kernels in ``NUMBA_CACHE_DIR`` without writing to it."""

    def ensure_cache_path(self) -> None:
        """Raise an error if the folder cannot be read, so that Numba tries other folders."""
        os.listdir(self.get_cache_path())  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def reading_shipped() -> Iterator[None]:
    """Allow functions that are decorated in this context to use a read-only ``NUMBA_CACHE_DIR``."""
    folder = config.CACHE_DIR
    writable = not os.path.isdir(folder) or os.access(folder, os.W_OK)
    if writable or getattr(config, "CACHE_LOCATOR_CLASSES", None) != "":  # requires Numba 0.62
        yield
        return
    locator = f"{__name__}.{ReadOnlyLocator.__name__}"
    config.CACHE_LOCATOR_CLASSES = f"{locator},InTreeCacheLocator,UserWideCacheLocator"
    try:
        yield
    finally:
        config.CACHE_LOCATOR_CLASSES = ""
