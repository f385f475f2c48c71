"""Where a decider has its model from."""

from __future__ import annotations

from typing import Protocol

from belated.core.inputs import Vector
from belated.decider.modes import Mode
from belated.decider.unapplied import UnappliedDecisions
from belated.model.model import Model


class ModelSource(Protocol):
    """A live learner, or one that was loaded."""

    @property
    def model(self) -> Model:
        """What chooses now."""

    @property
    def version(self) -> int:
        """Records that were folded into it."""

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that the model has not read as pending."""

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Count it no longer."""

    def change_mode(self, mode: Mode, unapplied: UnappliedDecisions) -> None:
        """Choose as the mode says from now on."""

    def repair(self, unapplied: UnappliedDecisions) -> None:
        """The model could not choose: make it anew."""
