"""``scipy.special``, imported on first use because the import is slow.

>>> from belated.model.kernels import special
>>> special.ndtr(0.0)
np.float64(0.5)
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # tools look up special attributes
        raise AttributeError(name)
    import scipy.special

    value = globals()[name] = getattr(scipy.special, name)
    return value
