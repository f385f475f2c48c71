"""The shop of the demo: visitors, offers, and purchases that happen days later.

It knows what the bandits have to learn: how likely each visitor buys after each offer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belated.inputs import Vector

#: The offers.
OFFERS = ("free shipping", "10% off", "gift", "bundle")
#: Probability of a purchase by offer, new or returning visitor, and computer or phone.
CHANCES = np.array(
    [
        [[0.06, 0.05], [0.08, 0.07]],
        [[0.14, 0.10], [0.05, 0.04]],
        [[0.05, 0.16], [0.06, 0.05]],
        [[0.04, 0.04], [0.15, 0.19]],
    ]
)
#: Mean days from an offer to its purchase.
DELAYS = np.array([1.0, 1.5, 2.0, 2.5])
#: Days after which nobody buys any more.
WINDOW = 7


class Shop:
    """Visitors and their luck.

    Args:
        seed: of both.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def visitor(self) -> dict[str, Any]:
        """Return the context of the next visitor."""
        returning, phone = self._rng.random(2) < (0.4, 0.5)
        return {"returning": int(returning), "phone": int(phone)}

    def chances(self, visitor: dict[str, Any]) -> Vector:
        """Return the probability that a visitor buys, by offer."""
        chances: Vector = CHANCES[:, visitor["returning"], visitor["phone"]]
        return chances

    def purchase(self, visitor: dict[str, Any], offer: int) -> float | None:
        """Return after how many days a visitor buys; None: never.

        It draws as many numbers whatever the offer, so that shops with one seed stay in step.
        """
        buys = self._rng.random() < self.chances(visitor)[offer]
        days = float(self._rng.exponential(DELAYS[offer]))
        return days if buys and days < WINDOW else None
