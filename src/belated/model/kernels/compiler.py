"""Compile kernels with Numba, each for one signature, and store the machine code in Numba's cache.

A kernel is never compiled for other types: arguments of other types are converted or rejected.
Callers therefore pass float64 arrays in C order. Arrays that a kernel only reads can be read-only.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from belated.exceptions import MissingExtra
from belated.model.kernels import pages
from belated.model.kernels.sets import Kernels, PageKernels, plain
from belated.model.kernels.source import (
    SWAPPED,
    bernoulli_link,
    capped,
    count,
    finite,
    gaussian_link,
    greatest,
    poisson_link,
    proximal,
    upper,
)

#: The kernels in order of compilation; kernels for decisions come first.
NAMES = (*asdict(plain()), "crc_all", "fold_page")

#: The argument types of each kernel. f is a float, i an int, u an unsigned int and b a bool. M and
#: V are a matrix and a vector, T and N an integer matrix and vector, and m, v, t and e are their
#: read-only versions. S is a stack of matrices, p a pool of draws, R a matrix of rows, C the bytes
#: of rows, B bytes, U read-only bytes, and P the slots of an index.
_ARGUMENTS = {
    "argmax_ucb_all": "m e e M S f v v b f i M",
    "count": "M v f",
    "learn": "M V v f i f",
    "upper": "m e M S f f i",
    "sampled": "m e M p f i",
    "score": "m e M S",
    "count_all": "S m e v",
    "unlearn": "M V v f f i f f",
    "amend": "M V v f f",
    "sip_hash": "u u u u u u",
    "crc_all": "U e e t N",
    "fold_page": "U e e e e i T M P R C N N v U R M T B U T",
}


#: Held while Numba is in use, because forking is then unsafe.
LOCK = threading.Lock()


class NotCached(Exception):
    """A kernel is not in the cache."""


def compiled() -> Kernels:
    """Return the compiled kernels; the first compilation takes half a minute.

    Raises:
        MissingExtra: Numba is not installed.
    """
    return Kernels(**{name: compile_kernel(name) for name in asdict(plain())})


def compiled_pages() -> PageKernels:
    """Return the compiled kernels for pages of records."""
    return PageKernels(compile_kernel("crc_all"), compile_kernel("fold_page"))


def compile_kernel(name: str) -> Callable[..., Any]:
    """Return a kernel from the cache, or compile and cache it.

    Raises:
        MissingExtra: Numba is not installed.
    """
    with LOCK:
        return _compiled(name)


def load_kernel(name: str) -> Callable[..., Any]:
    """Return a kernel from the cache.

    Raises:
        NotCached: the kernel is not in the cache.
        MissingExtra: Numba is not installed.
    """
    with LOCK:
        dispatcher, _ = _dispatchers()[name]
        from numba.core import event

        class Refusal(event.Listener):
            def on_start(self, event: Any) -> None:
                if event.data["dispatcher"] is dispatcher:
                    raise NotCached(name)

            def on_end(self, event: Any) -> None:
                pass

        with event.install_listener("numba:compile", Refusal()):
            return _compiled(name)


@cache
def _compiled(name: str) -> Callable[..., Any]:
    dispatcher, signature = _dispatchers()[name]
    with contextlib.suppress(OSError):  # raised if the kernel was compiled but cannot be cached
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher  # type: ignore[no-any-return]  # numba has no types


def was_cached(name: str) -> bool:
    """Return whether a compiled kernel came from the cache."""
    dispatcher, _ = _dispatchers()[name]
    return bool(dispatcher.stats.cache_hits)


def cache_folder() -> Path | None:
    """Return Numba's cache folder; None if there is no writable folder."""
    dispatcher, _ = _dispatchers()[NAMES[0]]
    path = dispatcher.stats.cache_path
    return None if path is None or not os.access(path, os.W_OK) else Path(path)


@contextlib.contextmanager
def compiling_alone() -> Iterator[None]:
    """Hold the lock of the cache folder, so that two processes do not compile the same kernels."""
    folder = cache_folder()
    try:
        import fcntl
    except ImportError:  # on Windows, two processes may do the same work
        folder = None
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "belated.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        yield


@cache
def _dispatchers() -> dict[str, tuple[Any, Any]]:
    """Return the uncompiled kernels by name, each with its signature."""
    try:
        import numba
        from numba import types
        from numba.extending import overload, register_jitable

        from belated.model.kernels.shipped import reading_shipped
    except ImportError:
        raise MissingExtra("compiling the kernels", "fast") from None
    # Import this now; otherwise the first matrix product in compiled code would import it.
    import_module("scipy.linalg.cython_blas")
    # Allow sums to be reordered, as in BLAS. Only comparisons are then reliable for NaN and inf:
    # math.isfinite compiles to x - x == 0, which reordering makes true.
    options: Any = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}}
    for primitive, loop in SWAPPED.items():
        overload(primitive, jit_options=options, strict=False)(_always(loop))
    for helper in (
        gaussian_link, bernoulli_link, poisson_link, finite, capped, proximal,
        greatest, upper, count,
    ):  # fmt: skip
        register_jitable(helper)
    numbers = {"f": types.float64, "i": types.int64, "u": types.uint64, "b": types.boolean}
    arrays = {
        letter: types.Array(number, dimensions, "C", readonly=readonly)
        for letter, number, dimensions, readonly in (
            ("M", types.float64, 2, False),
            ("V", types.float64, 1, False),
            ("m", types.float64, 2, True),
            ("v", types.float64, 1, True),
            ("p", types.float32, 3, True),
            ("S", types.float64, 3, False),
            ("e", types.int64, 1, True),
            ("t", types.int64, 2, True),
            ("T", types.int64, 2, False),
            ("N", types.int64, 1, False),
            ("P", types.int32, 1, False),
            ("U", types.uint8, 1, True),
            ("B", types.uint8, 1, False),
            ("C", types.uint8, 2, False),
            ("R", types.float32, 2, False),
        )
    }
    type_of = numbers | arrays
    # Without fast math: page kernels must compute exactly.
    exact: Any = {"error_model": "numpy"}
    for primitive, loop in pages.SWAPPED_PAGES.items():
        overload(primitive, jit_options=exact, strict=False)(_always(loop))
    reading: tuple[Any, ...] = (
        pages.unsigned,
        pages.after_text,
        pages.after_source,
        pages.after_context,
        pages.half_of,
        pages.float_at,
        pages.sip_round,
        pages.sip_hash,
    )
    for helper in reading:
        register_jitable(helper)
    with reading_shipped():
        try:
            jit, jit_exact = numba.njit(cache=True, **options), numba.njit(cache=True, **exact)
            jit(count)
        except RuntimeError:  # there is no cache folder
            jit, jit_exact = numba.njit(**options), numba.njit(**exact)
        kernels = {name: jit(kernel) for name, kernel in asdict(plain()).items()}
        for kernel in (pages.crc_all, pages.fold_page):
            kernels[kernel.__name__] = jit_exact(kernel)
    return {
        name: (kernel, tuple(type_of[letter] for letter in _ARGUMENTS[name].split()))
        for name, kernel in kernels.items()
    }


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: loop
