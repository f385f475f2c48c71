import subprocess
import sys


def test_importing_belated_does_not_load_numba() -> None:
    """Numba takes long to import, so it waits for the first compiled kernel."""
    code = "import sys, belated, belated.estimators; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


ROUNDS = """
import sys
from datetime import timedelta
import numpy as np
from belated import Bandit, Bernoulli, DelayedUCB, Explicit, kernels

bandit = Bandit(
    policy=DelayedUCB(3, Bernoulli()), rewards=Explicit(timedelta(days=1)), kernels=kernels.plain()
)
loaded = set(sys.modules)
for _ in range(60):
    bandit.observe(bandit.decide(np.eye(3)).id, 1.0)
print(*sorted(set(sys.modules) - loaded))
"""


def test_no_caller_waits_for_an_import() -> None:
    """What a fit needs is loaded before: an import takes as long as ten thousand decisions."""
    ran = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
