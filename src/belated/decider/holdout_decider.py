"""A decider with a holdout: the policy chooses for one group, a baseline for the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from belated.core.events import Decision, Source
from belated.core.inputs import Row
from belated.decider.decider import Decider, Made
from belated.decider.holdouts import BANDIT, HELD, Holdout, Marks
from belated.decider.requests import ParsedRequest
from belated.policies.policy import Choice

#: A floor that changes no probability; with it a policy says those of all actions.
_NONE = 1e-300


class HoldoutDecider(Decider):
    """A decider of which a share of decisions is made by a baseline.

    In the modes ``baseline`` and ``off`` there are no groups.

    Args:
        holdout: which share, and how it is decided.
        settings: of a :class:`Decider`.
    """

    holdout: Holdout

    def __init__(self, *settings: Any, holdout: Holdout, **others: Any) -> None:
        super().__init__(*settings, **others)
        self.holdout = holdout
        # What the policy would have done for those of the holdout, by their ids.
        self._by_policy: dict[str | None, float | None] = {}

    def choose(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        *,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        """As :meth:`Decider.choose`, each request by its group."""
        if self.mode in ("baseline", "off"):
            return super().choose(requests, table, now=now, rng=rng, hold=hold)
        named = [
            one if one.id is not None else replace(one, id=self._new_id(now, self.slot))
            for one in requests
        ]
        held = np.array([self.holdout.holds(one.unit or one.id or "") for one in named])
        if not held.any():
            return super().choose(named, table, now=now, rng=rng, hold=hold)
        line = np.repeat(held, [one.n_rows for one in named])
        decisions: dict[int, Decision] = {}
        kept: dict[int, bytes] = {}
        for is_held in (False, True):
            places = np.flatnonzero(held == is_held).tolist()
            if not places:
                continue
            some, rows = [named[n] for n in places], table[line == is_held]
            if is_held:
                made = self._choose_held(some, rows, now, rng, hold)
            else:
                made = super().choose(some, rows, now=now, rng=rng, hold=hold)
            decisions |= dict(zip(places, made.decisions, strict=True))
            kept |= {places[n]: data for n, data in made.requests.items()}
        return Made([decisions[n] for n in range(len(named))], kept)

    def _choose_held(
        self,
        requests: Sequence[ParsedRequest],
        table: Row,
        now: int,
        rng: np.random.Generator,
        hold: bool,
    ) -> Made:
        choices = self._choose_baseline(self.holdout.baseline, requests, table, rng)
        counts, start = self.mode == "learn" and hold, 0
        for request, choice in zip(requests, choices, strict=True):
            rows = table[start : start + request.n_rows]
            self._by_policy[request.id] = self._policy_share(rows, choice.index, rng)
            if counts and request.activated:
                counts = self._count(choice, rows)
            start += request.n_rows
        made = self._decide(requests, table, choices, "holdout", now, counts, hold)
        self._by_policy.clear()
        return Made(made, self._keep(requests, table, choices, made))

    def _policy_share(self, rows: Row, index: int, rng: np.random.Generator) -> float | None:
        """The probability with which the policy would take a row; None if it does not say it."""
        policy = dataclasses.replace(self.policy, floor=self.policy.floor or _NONE)
        try:
            choice = policy.choose(self.model, rows.astype(np.float64), rng)
        except Exception:  # the baseline decides, whatever the policy says
            return None
        if choice.shares is not None:
            return choice.shares[index]
        if choice.index == index:
            return choice.propensity
        return 0.0 if choice.propensity == 1.0 else None

    def _marks(self, request: ParsedRequest, choice: Choice, source: Source) -> Marks:
        if source == "baseline":
            return "", None
        held = source == "holdout"
        by_policy = self._by_policy.get(request.id) if held else choice.propensity
        if by_policy is None:
            return HELD, None
        share = self.holdout.baseline_share(choice.index, request.actions, request.n_rows)
        return HELD if held else BANDIT, self.holdout.overall(share, by_policy)
