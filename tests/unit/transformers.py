"""Transformers as scikit-learn has them."""

from __future__ import annotations

from typing import Any

import numpy as np


class Fake:
    """Like a fitted scikit-learn transformer: two columns, and no names for them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def transform(self, records: list[dict[str, Any]]) -> Any:
        """Age and price."""
        self.seen = records
        return np.array([[r.get("age", 0.0), r.get("price", 0.0)] for r in records])


class Named(Fake):
    """The same, with names for its columns."""

    def get_feature_names_out(self) -> Any:
        """As scikit-learn gives them: an array of objects."""
        return np.array(["age", "price"], dtype=object)
