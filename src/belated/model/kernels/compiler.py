"""Kernels compiled by numba, each for one signature, with the machine code in numba's cache.

A compiled kernel never compiles again: what it is called with is converted, or refused. So callers
pass float64 arrays in C order; arrays that a kernel only reads may be read-only.
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

#: The kernels, in the order in which they are made: those of a decision first.
NAMES = (*asdict(plain()), "crc_all", "fold_page")

#: The types of each kernel's arguments: f is a float, i an int, u an unsigned int and b a bool. M
#: and V are a matrix and a vector, T and N the same of whole numbers; m, v, t and e are read-only.
#: p is a pool of draws, R are rows, C their bytes, B and U bytes, U read-only, and P places of an
#: index.
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


#: Held while numba is at work for us: it is not safe to fork then.
LOCK = threading.Lock()


class NotCached(Exception):
    """A kernel is not in the cache."""


def compiled() -> Kernels:
    """The kernels compiled by numba; waits until they are, half a minute the first time.

    Raises:
        MissingExtra: numba is not installed.
    """
    return Kernels(**{name: compile_kernel(name) for name in asdict(plain())})


def compiled_pages() -> PageKernels:
    """The same for the kernels of pages."""
    return PageKernels(compile_kernel("crc_all"), compile_kernel("fold_page"))


def compile_kernel(name: str) -> Callable[..., Any]:
    """Return a kernel from the cache, or compile it and keep it there.

    Raises:
        MissingExtra: numba is not installed.
    """
    with LOCK:
        return _compiled(name)


def load_kernel(name: str) -> Callable[..., Any]:
    """Return a kernel from the cache.

    Raises:
        NotCached: it is not there.
        MissingExtra: numba is not installed.
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
    with contextlib.suppress(OSError):  # it cannot be kept; it is compiled all the same
        dispatcher.compile(signature)
    dispatcher.disable_compile()
    return dispatcher  # type: ignore[no-any-return]  # numba has no types


def was_cached(name: str) -> bool:
    """Return whether a compiled kernel came from the cache."""
    dispatcher, _ = _dispatchers()[name]
    return bool(dispatcher.stats.cache_hits)


def cache_folder() -> Path | None:
    """Return where numba keeps the machine code; None if it finds no folder it may write to."""
    dispatcher, _ = _dispatchers()[NAMES[0]]
    found = dispatcher.stats.cache_path
    return None if found is None or not os.access(found, os.W_OK) else Path(found)


@contextlib.contextmanager
def compiling_alone() -> Iterator[None]:
    """Wait until no other process fills the same cache: what it compiles need not be made twice."""
    folder = cache_folder()
    try:
        import fcntl
    except ImportError:  # Windows: then two may do the same work
        folder = None
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "belated.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go when the file is closed
        yield


@cache
def _dispatchers() -> dict[str, tuple[Any, Any]]:
    """The kernels before they are compiled, each with its signature."""
    try:
        import numba
        from numba import types
        from numba.extending import overload, register_jitable

        from belated.model.kernels.shipped import reading_shipped
    except ImportError:
        raise MissingExtra("compiling the kernels", "fast") from None
    import_module("scipy.linalg.cython_blas")  # or the first product of compiled code imports it
    # Sums may be reordered, as BLAS does. NaN and inf keep their meaning, but in comparisons only:
    # math.isfinite is x - x == 0 in machine code, which reordering makes true.
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
    known = numbers | arrays
    # Whole numbers wrap, whatever a page holds is compared as it is, and a number that is read is
    # the nearest: nothing is reordered.
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
    for one in reading:
        register_jitable(one)
    with reading_shipped():
        try:
            jit, jit_exact = numba.njit(cache=True, **options), numba.njit(cache=True, **exact)
            jit(count)
        except RuntimeError:  # no folder to keep machine code in
            jit, jit_exact = numba.njit(**options), numba.njit(**exact)
        made = {name: jit(kernel) for name, kernel in asdict(plain()).items()}
        for kernel in (pages.crc_all, pages.fold_page):
            made[kernel.__name__] = jit_exact(kernel)
    return {
        name: (kernel, tuple(known[letter] for letter in _ARGUMENTS[name].split()))
        for name, kernel in made.items()
    }


def _always(loop: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: loop
