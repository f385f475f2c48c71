"""Modes of a bandit, including the kill switch."""

from __future__ import annotations

from typing import Literal, get_args

#: ``learn``: decide with the newest model. ``freeze``: keep using the model that was current when
#: the bandit was frozen. ``baseline``: decide without a model. ``off``: make no decisions, but
#: accept rewards.
Mode = Literal["learn", "freeze", "baseline", "off"]
MODES: tuple[Mode, ...] = get_args(Mode)
