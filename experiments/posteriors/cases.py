"""The cases: how many features and rewards, how strong the effects, how weak the prior."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Logistic rewards of rows that Thompson sampling chose among ten fresh ones.

    Attributes:
        dim: d.
        n: rewards.
        norm: ‖θ*‖.
        ridge: the precision of the prior N(0, I/ridge).
        sets: data sets in the full run.
        sweeps: of all Gibbs chains, after a fifth as many that are thrown away.
    """

    dim: int
    n: int
    norm: float = 3.0
    ridge: float = 1.0
    sets: int = 20
    sweeps: int = 800

    @property
    def burn_in(self) -> int:
        """Sweeps that are thrown away."""
        return self.sweeps // 5

    @property
    def name(self) -> str:
        """Without commas, for the table."""
        prior = "" if self.ridge == 1.0 else f" ridge {self.ridge:g}".replace("0.", ".")
        return f"d={self.dim} n={self.n}{prior}"


CASES = {
    case.name: case
    for case in (
        Case(5, 20),
        Case(5, 1000, sets=8, sweeps=300),
        Case(20, 100, sweeps=500),
        Case(20, 1000, sets=8, sweeps=300),
        # A weak prior and few rewards: the posterior is skewed, and the rewards nearly separate.
        Case(5, 20, ridge=0.05, sweeps=1000),
        Case(10, 30, norm=5.0, ridge=0.01, sweeps=1000),
    )
}
