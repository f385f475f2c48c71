"""The shop of the demo: visitors, offers, and purchases that come days later.

It knows the truth, which the bandits do not: how likely each visitor buys after each offer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.inputs import Vector

#: What can be offered.
OFFERS = ("free shipping", "10 % off", "gift", "bundle")
#: How likely a visitor buys: a line for each offer; new or returning, and on a phone or not.
CHANCES = np.array(
    [
        [[0.06, 0.05], [0.08, 0.07]],
        [[0.14, 0.10], [0.05, 0.04]],
        [[0.05, 0.16], [0.06, 0.05]],
        [[0.04, 0.04], [0.15, 0.19]],
    ]
)
#: Days from an offer to its purchase, on average; those of the best offers take longer.
DELAYS = np.array([1.0, 1.5, 2.0, 2.5])
#: Days after which nobody buys any more.
WINDOW = 7.0


class Shop:
    """Visitors and their luck.

    Args:
        seed: of both.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def visitors(self, count: int) -> list[dict[str, Any]]:
        """Return the contexts of the next visitors."""
        drawn = self._rng.random((count, 2)) < (0.4, 0.5)
        return [{"returning": int(one), "phone": int(two)} for one, two in drawn]

    def chances(self, visitor: dict[str, Any]) -> Vector:
        """Return how likely a visitor buys, by offer."""
        found: Vector = CHANCES[:, visitor["returning"], visitor["phone"]]
        return found

    def purchase(self, visitor: dict[str, Any], offer: int) -> float | None:
        """Return after how many days a visitor buys; None: never."""
        buys = self._rng.random() < self.chances(visitor)[offer]
        days = float(self._rng.exponential(DELAYS[offer]))
        return days if buys and days < WINDOW else None
