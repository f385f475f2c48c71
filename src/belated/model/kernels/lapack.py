"""SciPy's wrappers of BLAS and LAPACK, without the rest of ``scipy.linalg``.

Importing ``scipy.linalg`` takes longer than importing all of belated. Its two extension modules are
therefore loaded directly from its folder; if they are not found, the whole package is imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

if sys.platform == "win32":
    import scipy  # noqa: F401  # registers the folder of SciPy's libraries


def _wrapper(name: str, public: str) -> Any:
    package = find_spec("scipy")
    folders = package.submodule_search_locations if package else None
    places = [f"{folder}/linalg" for folder in folders or ()]
    spec = PathFinder.find_spec(f"scipy.linalg.{name}", places)
    if spec is None or spec.loader is None:
        return import_module(public)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_BLAS = _wrapper("_fblas", "scipy.linalg.blas")
_LAPACK = _wrapper("_flapack", "scipy.linalg.lapack")

daxpy, ddot, dgemm, dgemv = (getattr(_BLAS, name) for name in ("daxpy", "ddot", "dgemm", "dgemv"))
dposv, dpotrf, dtrtri = (getattr(_LAPACK, name) for name in ("dposv", "dpotrf", "dtrtri"))
