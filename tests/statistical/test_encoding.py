"""The regret of encoded records and of manually computed rows, from the committed table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("problem", "delay"), [(p, d) for p in ("mixed", "digits") for d in ("0", "geo100")]
)
def test_encoded_records_cost_little(problem: str, delay: str) -> None:
    """On paired seeds the regret is not above that of rows made by hand, but for noise."""
    table = pd.read_csv(ROOT / "experiments/encoding/table.csv", dtype={"delay": str})
    regret = table[table["delay"] == delay].pivot_table("regret", "seed", "environment")
    pairs = regret[[f"{problem}: encoded", f"{problem}: by hand"]].dropna().to_numpy()
    differences = pairs[:, 0] - pairs[:, 1]
    assert len(differences) >= 8
    assert differences.mean() <= 2.0 * differences.std(ddof=1) / len(differences) ** 0.5
    if problem == "mixed":  # numbers as they come are far worse
        assert pairs[:, 0].mean() < 0.6 * regret["mixed: raw"].mean()
