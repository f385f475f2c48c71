"""``python -m belated.kernels``: fill numba's cache, without haste; a line for each kernel."""

import os

from belated.kernels.compiler import NAMES, compile_kernel, compiling_alone


def main() -> None:
    """Compile what is not in the cache."""
    if hasattr(os, "nice"):
        os.nice(5)
    with compiling_alone():
        for name in NAMES:
            compile_kernel(name)
            print(name, flush=True)


if __name__ == "__main__":
    main()
