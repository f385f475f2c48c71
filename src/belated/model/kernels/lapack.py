"""BLAS and LAPACK by scipy's wrappers, without the rest of ``scipy.linalg``.

The package takes longer to import than all of belated, for what it offers besides. Its two
extension modules are found in its folder; where they are not, the package is imported after all.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

if sys.platform == "win32":
    import scipy  # noqa: F401  # it says where its libraries are


def _wrapper(name: str, public: str) -> Any:
    package = find_spec("scipy")
    folders = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec(f"scipy.linalg.{name}", [f"{one}/linalg" for one in folders or ()])
    if spec is None or spec.loader is None:
        return import_module(public)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_BLAS = _wrapper("_fblas", "scipy.linalg.blas")
_LAPACK = _wrapper("_flapack", "scipy.linalg.lapack")

daxpy, ddot, dgemm, dgemv = (getattr(_BLAS, name) for name in ("daxpy", "ddot", "dgemm", "dgemv"))
dposv, dpotrf, dtrtri = (getattr(_LAPACK, name) for name in ("dposv", "dpotrf", "dtrtri"))
