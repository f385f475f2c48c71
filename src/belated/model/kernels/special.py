"""``scipy.special``, imported when the first of its functions is called: it takes long.

>>> from belated.model.kernels import special
>>> special.ndtr(0.0)
np.float64(0.5)
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("_"):  # what tools look for in a module
        raise AttributeError(name)
    import scipy.special

    value = globals()[name] = getattr(scipy.special, name)
    return value
