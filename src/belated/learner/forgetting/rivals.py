"""The models that are only compared: all of them move at once, some rewards at a time."""

from __future__ import annotations

import numpy as np

from belated.estimators import Estimate
from belated.inputs import Matrix, Vector
from belated.kernels import MAX_WEIGHT
from belated.learner.forgetting.evidence import Times
from belated.learner.forgetting.tracks import NEWEST, Track
from belated.models import STEP, Model
from belated.policies.policy import Policy


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
        model.rivals = self._thetas  # the same array: steps move it

    def start_of(self, track: int) -> Vector:
        """Where to start the next fit of one."""
        start: Vector = self._thetas[track].copy()
        return start

    def go_on_from(self, track: int, estimate: Estimate) -> None:
        """Go on from a fit of one."""
        self._thetas[track] = estimate.mean
        self._precisions[track] = estimate.precision
        self._dispersions[track] = estimate.dispersion

    def learn(self, rows: Matrix, y: Vector, made: Times) -> None:
        """Rewards came that were in no fit."""
        _, means, slopes = self._family.cumulant_mean_slope(rows @ self._thetas.T)
        counts = self._shares(made) / self._dispersions
        weights = np.minimum(counts * slopes, MAX_WEIGHT)
        self._precisions += (rows.T * weights.T[:, None, :]) @ rows
        scores = (counts * (y[:, None] - means)).T @ rows
        try:
            steps = np.linalg.solve(self._precisions, scores[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:  # the next fit mends it
            steps = np.zeros_like(scores)
        far = np.abs(rows @ steps.T).max(axis=0)
        if self._family.number != 0:  # steps of Gaussian rewards are exact
            steps *= np.minimum(1.0, STEP / np.maximum(far, STEP))[:, None]
        if np.isfinite(steps).all():
            self._thetas += steps

    def _shares(self, made: Times) -> Matrix:
        """What each reward counts for, by each half-life."""
        shares = np.ones((len(made), len(self._tracks)))
        for n, track in enumerate(self._tracks):
            if track.half_life is not None:
                age = (made - track.fitted_at) / track.half_life
                shares[:, n] = np.exp2(np.minimum(age, NEWEST))
        return shares
