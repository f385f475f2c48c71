"""A decider's copy of a published model, to which its own later decisions are added as pending."""

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
    """The newest published model, or the model that an operator chose.

    Decisions that the learner had not read are counted as pending in the newest model. A model
    chosen by an operator does not change.

    Args:
        policy: the learner's policy.
        kernels: kernels to use instead of the fastest available.

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
        #: The model that chooses; before a model is loaded, the prior.
        self.model = self._model_of(None)
        #: Number of records that the learner had folded when it published the model.
        self.version = 0

    def load(self, published: PublishedModel, unapplied: UnappliedDecisions) -> None:
        """Use ``published`` as the newest model, and drop the decisions it has read.

        Raises:
            JournalMismatch: the model is for a different policy or different features.
            CorruptJournal: the model contains numbers that are not finite.
        """
        model = published.model(self._policy, kernels=self._kernels)
        self._published = published
        unapplied.forget_read(published.positions)
        if self._chosen is None:
            self.model, self.version = model, published.version
            self._count(unapplied)

    def use_model(self, chosen: PublishedModel | None, unapplied: UnappliedDecisions) -> None:
        """Use the given model, even if newer ones are published; None means the newest again.

        Raises:
            JournalMismatch: the model is for a different policy or different features.
            CorruptJournal: the model contains numbers that are not finite.
        """
        published = chosen or self._published
        self.model, self._chosen = self._model_of(published), chosen
        self.version = 0 if published is None else published.version
        self._count(unapplied)

    def change_mode(self, mode: Mode, unapplied: UnappliedDecisions) -> None:
        """Change the mode. While the model is frozen, pending decisions are not counted."""
        self._frozen = mode == "freeze"
        self.repair(unapplied)

    def repair(self, unapplied: UnappliedDecisions) -> None:
        """Restore the model to its published state."""
        self.model = self._model_of(self._chosen or self._published)
        self._count(unapplied)

    def add_pending(self, x: Vector, weight: float) -> None:
        """Count a decision as pending."""
        self._policy.add_pending(self.model, x, weight)

    def remove_pending(self, x: Vector, weight: float) -> None:
        """Stop counting a decision that was never recorded."""
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
        """Count the unapplied decisions in a new model."""
        is_fixed = self._frozen or self._chosen is not None
        for entry in unapplied:
            entry.counted = entry.decision.activated and not is_fixed
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
    """Add the information of summed pending decisions to a model, using its square root."""
    inverse = np.linalg.inv(model.decided)
    model.decided = root_of(inverse.swapaxes(-2, -1) @ inverse + summed.matrix)
    model.pending += summed.count
    model.decisions += summed.count
