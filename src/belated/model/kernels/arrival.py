"""Replace plain kernels with compiled ones in the background.

Compilation takes half a minute and would block other threads, so a child process compiles the
kernels and fills Numba's cache. A thread in this process loads them from the cache one by one and
replaces the plain kernels. Only a fork or the end of the process waits while a kernel is loaded.
"""

from __future__ import annotations

import atexit
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from importlib.util import find_spec

from belated.model.kernels.compiler import LOCK, NAMES, NotCached, cache_folder, load_kernel
from belated.model.kernels.sets import Kernels, PageKernels, plain

log = logging.getLogger("belated.model.kernels")

_PAGES = tuple(field.name for field in fields(PageKernels))
#: Delay before Numba is loaded, in seconds, so that short-lived processes do not load it.
SETTLED = 1.0


def best() -> Kernels:
    """Return each kernel in its best available form: compiled if loaded, otherwise plain.

    The set changes while kernels are loaded. If Numba is installed, the first call starts loading.
    """
    _arrival.start()
    return _arrival.kernels


def complete() -> Kernels:
    """Return the compiled kernels if all are loaded, otherwise the plain ones.

    The returned set does not change.
    """
    _arrival.start()
    return _arrival.complete


def page_kernels(*, wait: bool = False) -> PageKernels | None:
    """Return the kernels for pages of records if they are loaded, otherwise None.

    Args:
        wait: load the kernels now if they are in the cache, which takes half a second.
    """
    _arrival.start()
    return _arrival.pages(wait)


class _Arrival:
    """The kernels of this process, and the thread that replaces plain kernels."""

    def __init__(self) -> None:
        self.kernels = replace(plain())
        self.complete = plain()
        self._pages: dict[str, Callable[..., int]] = {}
        self._begin()

    def _begin(self) -> None:
        self._once = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if self._once.acquire(blocking=False) and find_spec("numba"):
            self._thread = threading.Thread(target=self._run, name="belated-kernels", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        if self._stopped.wait(SETTLED):
            return
        try:
            missing = [name for name in NAMES if not self._load(name)]
            if missing:
                for name in self._compiled_elsewhere():
                    self._load(name)
                missing = [name for name in missing if not self._load(name)]
            if missing:
                raise RuntimeError(f"{', '.join(missing)} could not be compiled")
            self.complete = replace(self.kernels)
        except Exception as error:  # plain kernels return the same results
            if self._stopped.is_set():  # modules are being unloaded at the end of the process
                return
            log.warning(
                "compiled kernels are unavailable, continuing with plain ones (try `belated warm`):"
                " %s",
                error,
            )

    def _load(self, name: str) -> bool:
        if self._stopped.is_set():
            return False
        try:
            kernel = load_kernel(name)
        except NotCached:
            return False
        if name in _PAGES:
            self._pages[name] = kernel
        else:
            setattr(self.kernels, name, kernel)
        return True

    def pages(self, wait: bool) -> PageKernels | None:
        if len(self._pages) == len(_PAGES):
            return PageKernels(**self._pages)
        if wait and find_spec("numba") and all(map(self._load, _PAGES)):
            return PageKernels(**self._pages)
        return None

    def _compiled_elsewhere(self) -> Iterator[str]:
        """Fill the cache in a child process; yield the name of each compiled kernel."""
        if cache_folder() is None:
            raise RuntimeError("Numba has no writable cache folder: set NUMBA_CACHE_DIR")
        # The executable of a frozen application is not Python.
        if self._stopped.is_set() or getattr(sys, "frozen", False):
            return
        from multiprocessing import spawn

        with subprocess.Popen(
            [os.fsdecode(spawn.get_executable()), "-P", "-m", "belated", "warm"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as self._child:
            if self._stopped.is_set():
                self._child.kill()
            if hasattr(os, "setpriority"):  # Windows has no niceness
                with suppress(OSError):  # raised if the child has already ended
                    nice = os.getpriority(os.PRIO_PROCESS, self._child.pid)
                    os.setpriority(os.PRIO_PROCESS, self._child.pid, nice + 5)
            assert self._child.stdout is not None
            for line in self._child.stdout:
                if (name := line.partition(":")[0]) in NAMES:
                    yield name

    def stop(self) -> None:
        """Stop loading machine code, because the process is exiting."""
        self._stopped.set()
        if self._child is not None:
            self._child.kill()  # kernels compiled so far are in the cache
        if self._thread is not None:
            self._thread.join()

    def after_fork(self) -> None:
        """Reset the state in a forked child, which has no thread; the next call starts one."""
        LOCK.release()
        if self.complete is plain():
            self._begin()
        else:
            self._thread = self._child = None


_arrival = _Arrival()
atexit.register(_arrival.stop)
if hasattr(os, "register_at_fork"):  # registered only once, because the lock is not reentrant
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=_arrival.after_fork
    )
