"""Pages of PostgreSQL folded as columns give the same result as the rules."""

from __future__ import annotations

import pytest

from belated.journals import PostgresJournal
from belated.model.kernels import compiled_pages
from tests.laws.column_runs import Clock, run


def test_columns_of_a_database(dsn: str, request: pytest.FixtureRequest) -> None:
    """With digests, checksums and a chain; each column is read as one value."""
    pytest.importorskip("numba")
    for seed in range(100 if request.config.getoption("--full") else 8):
        clock = Clock()
        with PostgresJournal(dsn, bandit=f"columns-{seed}") as journal:
            run(3_000_000 + seed, journal, compiled_pages(), clock)
