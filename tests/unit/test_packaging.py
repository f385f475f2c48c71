import subprocess
import sys


def test_importing_belated_does_not_load_numba() -> None:
    """Numba takes long to import, so it waits for the first compiled kernel."""
    code = "import sys, belated, belated.estimators; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
