"""Run a function on many cells, in several processes, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import joblib
import pandas as pd
from tqdm import tqdm

Rows = list[dict[str, Any]]


def table_of(
    function: Callable[..., Rows], cells: Collection[Iterable[Any]], *, jobs: int, unit: str
) -> pd.DataFrame:
    """Return the rows of all cells, in the order of the cells.

    Args:
        function: returns the rows of one cell.
        cells: the arguments of each cell.
        jobs: number of processes.
        unit: what the progress bar calls a cell.
    """
    with joblib.parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        results = joblib.Parallel(return_as="generator")(
            joblib.delayed(function)(*cell) for cell in cells
        )
        rows = [row for rows in tqdm(results, total=len(cells), unit=unit) for row in rows]
    return pd.DataFrame(rows)
