"""The models that are only compared: all of them move at once, a few rewards at a time."""

from __future__ import annotations

import numpy as np

from belated.estimators import Estimate
from belated.inputs import Matrix, Vector
from belated.kernels import MAX_WEIGHT
from belated.learner.forgetting.tracks import NEWEST, Track
from belated.models import STEP, Model
from belated.policies.policy import Policy

#: Rewards that are learned together.
TOGETHER = 8


class Rivals:
    """θ̂ and its precision by each half-life; between two fits one Newton step for some rewards.

    Predictions are compared by them, and by nothing else: so they may lag a little.

    Args:
        policy: whose models they are.
        tracks: the half-lives.
        model: the one in use; it predicts by them.
    """

    def __init__(self, policy: Policy, tracks: list[Track], model: Model) -> None:
        self._family = policy.family
        self._tracks = tracks
        self._thetas = np.tile(policy.start.mean, (len(tracks), 1))
        self._precisions = np.tile(policy.start.precision, (len(tracks), 1, 1))
        self._dispersions = np.full(len(tracks), model.dispersion)
        self._rows: list[Vector] = []
        self._y: list[float] = []
        self._made: list[int] = []
        model.rivals = self._thetas  # the same array: steps move it

    def learn(self, x: Vector, y: float, made: int) -> None:
        """A reward came."""
        self._rows.append(x)
        self._y.append(y)
        self._made.append(made)
        if len(self._y) == TOGETHER:
            self._step()

    def start_of(self, track: int) -> Vector:
        """Where to start the next fit of one."""
        start: Vector = self._thetas[track].copy()
        return start

    def go_on_from(self, track: int, estimate: Estimate) -> None:
        """Go on from a fit of one, which knows all that has come."""
        if self._y:  # by the others, while this one has the time of its last fit
            self._step()
        self._thetas[track] = estimate.mean
        self._precisions[track] = estimate.precision
        self._dispersions[track] = estimate.dispersion

    def _step(self) -> None:
        rows, y = np.array(self._rows), np.array(self._y)[:, None]
        _, means, slopes = self._family.cumulant_mean_slope(rows @ self._thetas.T)
        counts = self._shares() / self._dispersions
        weights = np.minimum(counts * slopes, MAX_WEIGHT)
        self._precisions += (rows.T * weights.T[:, None, :]) @ rows
        scores = (counts * (y - means)).T @ rows
        try:
            steps = np.linalg.solve(self._precisions, scores[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:  # the next fit mends it
            steps = np.zeros_like(scores)
        far = np.abs(rows @ steps.T).max(axis=0)
        if self._family.number != 0:  # steps of Gaussian rewards are exact
            steps *= np.minimum(1.0, STEP / np.maximum(far, STEP))[:, None]
        if np.isfinite(steps).all():
            self._thetas += steps
        for column in (self._rows, self._y, self._made):
            column.clear()

    def _shares(self) -> Matrix:
        """What each reward counts for, by each half-life."""
        shares = np.ones((len(self._made), len(self._tracks)))
        made = np.array(self._made)
        for n, track in enumerate(self._tracks):
            if track.half_life is not None:
                age = (made - track.fitted_at) / track.half_life
                shares[:, n] = np.exp2(np.minimum(age, NEWEST))
        return shares
