import subprocess
import sys
from importlib.metadata import version

import pytest

import belated
from belated.cli.main import main
from belated.model.kernels import lapack

#: They take longer to import than all of belated, or nobody who decides needs them.
LATER = (
    "belated.simulation", "belated.service", "belated.testing", "joblib", "matplotlib",
    "multiprocessing", "numba", "numpy.f2py", "numpy.testing", "pandas", "psycopg", "scipy",
    "scipy.linalg",
    "scipy.optimize", "scipy.special", "scipy.stats",
)  # fmt: skip


def run(code: str) -> str:
    """What the code prints in a new process."""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert process.stderr == ""
    return process.stdout


def test_importing_belated_loads_what_deciding_needs() -> None:
    """Modules are counted, not milliseconds: benchmarks/cold_start.py has those."""
    loaded = run("import sys, belated; print(*sys.modules)").split()
    assert [name for name in LATER if name in loaded] == []
    assert len(loaded) < 450


def test_what_is_imported_later_is_there() -> None:
    """Every public name can be imported, seen and taken from the package."""
    assert set(belated.__all__) <= set(dir(belated))
    code = "import belated; print(*(getattr(belated, name) for name in belated.__all__))"
    assert run(code)
    assert run("from belated import *; print(SQLiteJournal.__name__)") == "SQLiteJournal\n"
    with pytest.raises(AttributeError, match="no attribute 'Banditt'"):
        belated.Banditt  # type: ignore[attr-defined]  # noqa: B018


def test_blas_is_scipys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package or, where its file has another name, with it."""
    import scipy.linalg.blas

    assert lapack.ddot is scipy.linalg.blas.ddot
    monkeypatch.setattr(lapack, "find_spec", lambda name: None)
    assert lapack._wrapper("_fblas", "scipy.linalg.blas") is scipy.linalg.blas


def test_the_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    """So does the package."""
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"belated {version('belated')}\n"
    assert belated.__version__ == version("belated")


ROUNDS = """
import sys
from datetime import timedelta
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit
from belated.model import kernels

bandit = Bandit(
    policy=DelayedUCB(3, Bernoulli()), rewards=Explicit(timedelta(days=1)), kernels=kernels.plain()
)
loaded = set(sys.modules)
for _ in range(60):
    bandit.observe(bandit.decide(rows=np.eye(3)).id, 1.0)
print(*sorted(set(sys.modules) - loaded))
"""


def test_no_caller_waits_for_an_import() -> None:
    """What a fit needs is loaded before: an import takes as long as ten thousand decisions."""
    assert run(ROUNDS).split() == []
