"""The model of a fold in this process, as a decider takes it."""

from __future__ import annotations

from belated.core.inputs import Vector
from belated.exceptions import JournalMismatch
from belated.fold.fold import Fold
from belated.model.kernels import Kernels
from belated.model.model import Model


class LiveModel:
    """Chooses with whatever is folded; with the model of the moment while the mode is ``freeze``.

    Args:
        fold: the state.
        kernels: to use instead of the best available.
    """

    def __init__(self, fold: Fold, *, kernels: Kernels | None = None) -> None:
        self._fold = fold
        self._kernels = kernels
        self._frozen: tuple[Model, int] | None = None

    @property
    def model(self) -> Model:
        """The live model, or the frozen one."""
        return self._fold.learner.model if self._frozen is None else self._frozen[0]

    @property
    def version(self) -> int:
        """Records that were folded into it."""
        return self._fold.version if self._frozen is None else self._frozen[1]

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision that is not folded yet."""
        self._fold.learner.hold(x, weight)

    def remove_pending(self, x: Vector, weight: float) -> None:
        """It is about to be folded, and then counts by itself."""
        self._fold.learner.release(x, weight)

    def change_mode(self, mode: str, unapplied: object = None) -> None:
        """Use the model of the moment the bandit was frozen, or the live one."""
        frozen = self._fold.frozen
        if mode != "freeze" or frozen is None:
            self._frozen = None
            return
        policy = self._fold.learner.policy
        try:
            self._frozen = frozen.model(policy, kernels=self._kernels), frozen.version
        except JournalMismatch:  # frozen under another policy: this one freezes what it finds
            now = self._fold.publish(frozen.at)
            self._frozen = now.model(policy, kernels=self._kernels), now.version

    def repair(self, unapplied: object = None) -> None:
        """Make the live model anew from all that has arrived."""
        self._fold.learner.fit()
