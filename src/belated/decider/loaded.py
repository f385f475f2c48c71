"""A published model that a decider has loaded, with what was decided here since."""

from __future__ import annotations

import numpy as np

from belated.core.inputs import Vector
from belated.decider.decider import UnappliedDecisions
from belated.decider.modes import Mode
from belated.fold.published import PublishedModel
from belated.model.blocks import root_of
from belated.model.kernels import Kernels
from belated.model.model import Model
from belated.model.statistics import Information
from belated.policies import Policy


class LoadedModel:
    """The newest published model, or the one that an operator chose.

    The newest counts decisions that its learner had not read; a chosen one does not change.

    Args:
        policy: what chooses; the learner must have the same one.
        kernels: to use instead of the best available.

    >>> from belated import Bernoulli, DelayedUCB
    >>> LoadedModel(DelayedUCB(2, Bernoulli())).version
    0
    """

    def __init__(self, policy: Policy, *, kernels: Kernels | None = None) -> None:
        self._policy = policy
        self._kernels = kernels
        self._published: PublishedModel | None = None
        self._chosen: PublishedModel | None = None
        self._frozen = False
        #: What chooses: the prior before the first model is loaded.
        self.model = self._model_of(None)
        #: Records that the learner had folded when it made the model.
        self.version = 0

    def load(self, published: PublishedModel, unapplied: UnappliedDecisions) -> None:
        """Replace the newest model.

        Raises:
            JournalMismatch: it was made for another policy, or for other features.
            CorruptJournal: it holds numbers that are not finite.
        """
        model = published.model(self._policy, kernels=self._kernels)
        self._published = published
        unapplied.forget_read(published.positions)
        if self._chosen is None:
            self.model, self.version = model, published.version
            self._count(unapplied)

    def use_model(self, chosen: PublishedModel | None, unapplied: UnappliedDecisions) -> None:
        """Choose with this model, whatever is published; None: with the newest again.

        Raises:
            JournalMismatch: it was made for another policy, or for other features.
            CorruptJournal: it holds numbers that are not finite.
        """
        published = chosen or self._published
        self.model, self._chosen = self._model_of(published), chosen
        self.version = 0 if published is None else published.version
        self._count(unapplied)

    def change_mode(self, mode: Mode, unapplied: UnappliedDecisions) -> None:
        """A frozen model is not changed by what is decided with it either."""
        self._frozen = mode == "freeze"
        self.repair(unapplied)

    def repair(self, unapplied: UnappliedDecisions) -> None:
        """Start again from the model as it was published."""
        self.model = self._model_of(self._chosen or self._published)
        self._count(unapplied)

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision as pending."""
        self._policy.add_pending(self.model, x, weight)

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Count a decision no longer: it never came to be."""
        self.model.decisions -= 1
        if self._policy.pending_weight == 0.0:
            self.model.pending -= 1
        else:
            self.model.remove_pending(x, self._policy.share(weight))

    def _model_of(self, published: PublishedModel | None) -> Model:
        if published is None:
            return Model(self._policy.start, self._policy.family, kernels=self._kernels)
        return published.model(self._policy, kernels=self._kernels)

    def _count(self, unapplied: UnappliedDecisions) -> None:
        """Count in a new model what it has not read."""
        is_fixed = self._frozen or self._chosen is not None
        for one in unapplied:
            one.counted = one.decision.activated and not is_fixed
        if is_fixed:
            return
        model, policy = self.model, self._policy
        rows, shares, summed = unapplied.pending()
        if policy.pending_weight == 0.0:
            model.pending += len(rows) + summed.count
            model.decisions += len(rows) + summed.count
            return
        if summed.count:
            _add(model, summed)
        if len(rows):
            model.add_all_pending(rows, shares)


def _add(model: Model, summed: Information) -> None:
    """Count a sum: H of the model plus the sum, and a root of that."""
    inverse = np.linalg.inv(model.decided)
    model.decided = root_of(inverse.swapaxes(-2, -1) @ inverse + summed.matrix)
    model.pending += summed.count
    model.decisions += summed.count
