"""How a bandit decides: the kill switch."""

from __future__ import annotations

from typing import Literal, get_args

#: ``learn``: with the newest model. ``freeze``: with the model of the moment it was frozen.
#: ``baseline``: without a model. ``off``: not at all; rewards are accepted.
Mode = Literal["learn", "freeze", "baseline", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)
