"""Deciding, for one request or many."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from belated.bandit.lifecycle import Lifecycle
from belated.decider import MODES, Decider, Made, ParsedRequest
from belated.decider.batches import OneRequest, naming, split_requests
from belated.decider.requests import check_same, parse_request, rows_of
from belated.decider.scores import Scores
from belated.events import Decision
from belated.exceptions import FallbackWarning, InvalidInput
from belated.features import Actions, Features
from belated.ids import check_id
from belated.inputs import Row, are_plain
from belated.ledger.requests import Keep
from belated.policies import Policy


class Deciding(Lifecycle):
    """How a :class:`~belated.Bandit` decides."""

    policy: Policy
    features: Features | None
    _clock: Callable[[], int]
    _decider: Decider
    _keep: Keep

    def decide(
        self,
        rows: Any = None,
        actions: Actions | None = None,
        *,
        id: str | None = None,
        activated: bool = True,
    ) -> Decision:
        """Choose an action; the choice is durable before this returns.

        Args:
            rows: one row per action; or the context, if the bandit has features.
            actions: the actions, in the order of the rows. If the bandit has features that know
                all actions (:class:`~belated.PerArm`), None stands for those.
            id: your own decision id. The same id again returns the same decision.
            activated: False if the window starts only with :meth:`activate`.

        Raises:
            BanditOff: the bandit's mode is ``off``.
        """
        with self._lock, self._follower:
            if self._read_only:
                self._check_open()
            if id is not None:
                id = check_id(id)
                self._follower.look()  # another process may have used it
                known = self._known(id)
                if known is not None:
                    return self._again(known, rows, actions)
            now = self._clock()
            decider, fold = self._decider, self._fold
            plainly = id is None and actions is None and activated is True
            if plainly and decider.plain is not None and decider.mode == "learn" == fold.mode:
                model, version = fold.learner.model, fold.version
                plain = decider.plain.choose(rows, model, version, now, self._rng)
                if plain is not None:
                    self._follower.append_one(plain, now)
                    return plain
            request, table = self._parse(rows, actions, id, activated)
            (event,), kept = self._choose([request], table, now)
            if id is None:
                self._follower.append_one(event, now, kept)
                return event
            _, standing = self._follower.append_told([event], kept, only=(id,))
            other = standing.get(event.id)  # another process was faster
            return event if other is None else self._again(other, rows, actions)

    def decide_many(
        self,
        requests: Any,
        actions: Actions | None = None,
        *,
        ids: Any = None,
        activated: bool = True,
    ) -> list[Decision]:
        """Choose for many requests, each as if those before it were pending; one append for all.

        All requests are checked before anything is decided.

        Args:
            requests: a list of row tables. If the bandit has features: a list of contexts; or a
                frame of pandas or polars, one context per line; or a list of (context, actions)
                pairs.
            actions: the actions of all requests, as in :meth:`decide`.
            ids: your own decision id for each request: a list, or the name of a column of the
                frame. The same id again returns the same decision.
            activated: False if the windows start only with :meth:`activate`.

        >>> from datetime import timedelta
        >>> from belated import Bandit, Bernoulli, ConversionsOnly, DelayedUCB, PerArm
        >>> features = PerArm(["mail", "call"], context=["visits"])
        >>> policy = DelayedUCB(features.dim, Bernoulli())
        >>> week = ConversionsOnly(timedelta(days=7))
        >>> bandit = Bandit(policy=policy, rewards=week, features=features, seed=7)
        >>> customers = [{"visits": 0.1}, {"visits": 0.9}]
        >>> decisions = bandit.decide_many(customers, ["mail", "call"], ids=["c1", "c2"])
        >>> [decision.id for decision in decisions]
        ['c1', 'c2']
        """
        asked = split_requests(requests, actions, ids, features=self.features is not None)
        with self._lock, self._follower:
            self._check_open()
            answers: dict[int, Decision] = {}
            parsed: list[ParsedRequest] = []
            tables: list[Row] = []
            places = []
            if ids is not None:
                self._follower.look()  # another process may have used them
            elif self.features is None and actions is None:
                tables, parsed = self._parse_alike(asked, activated)
                places = [*range(len(parsed))]
            for place, (rows, offered, id) in enumerate(asked[len(parsed) :], len(parsed)):
                try:
                    known = None if id is None else self._known(id)
                    if known is not None:
                        answers[place] = self._again(known, rows, offered)
                        continue
                    one, table = self._parse(rows, offered, id, activated)
                except InvalidInput as error:
                    raise naming(f"requests[{place}]", error) from None
                parsed.append(one)
                tables.append(table)
                places.append(place)
            if parsed:
                table = tables[0] if len(tables) == 1 else np.concatenate(tables)
                made, kept = self._choose(parsed, table, self._clock())
                named = [one.id for one in parsed if one.id is not None]
                _, standing = self._follower.append_told(made, kept, only=named)
                for place, event in zip(places, made, strict=True):
                    other = standing.get(event.id)  # another process was faster
                    rows, offered, _ = asked[place]
                    answers[place] = event if other is None else self._again(other, rows, offered)
            return [answers[place] for place in range(len(asked))]

    def score(self, rows: Any = None, actions: Actions | None = None) -> Scores:
        """Return what the bandit would choose now, and why, without deciding.

        Args:
            rows: as in :meth:`decide`.
            actions: as in :meth:`decide`.

        >>> from belated import Bandit, Bernoulli, ConversionsOnly, DelayedUCB
        >>> week = ConversionsOnly("7d")
        >>> bandit = Bandit(policy=DelayedUCB(2, Bernoulli()), rewards=week, seed=7)
        >>> red = bandit.score([[1.0, 0.0], [0.0, 1.0]], ["red", "blue"]).actions[0]
        >>> red.action, red.mean, round(red.high, 2)
        ('red', 0.5, 0.88)
        >>> bandit.pending.count
        0
        """
        with self._lock, self._follower:
            self._read_new()
            self._obey()
            request, table = self._parse(rows, actions, None, True)
            return self._decider.score(request, table, rng=np.random.default_rng())

    def _parse(
        self, rows: Any, actions: Actions | None, id: str | None, activated: bool
    ) -> tuple[ParsedRequest, Row]:
        self._follower.intact = True  # whatever the caller's features raise
        parsed = parse_request(
            rows,
            actions,
            dim=self.policy.dim,
            features=self.features,
            id=id,
            activated=activated,
            keeps=self._keep != 0.0,
            holdout=self._decider.holdout,
        )
        self._follower.intact = False
        return parsed

    def _parse_alike(
        self, asked: Sequence[OneRequest], activated: bool
    ) -> tuple[list[Row], list[ParsedRequest]]:
        """All tables in one, if they are arrays of rows; nothing if one of them may be refused."""
        if activated is not True or not asked or self._decider.holdout is not None:
            return [], []
        tables = [one.rows for one in asked]
        if not all(map(partial(are_plain, dim=self.policy.dim), tables)):
            return [], []
        rows = np.concatenate(tables, dtype=np.float32, casting="same_kind")
        return [rows], [ParsedRequest(len(table)) for table in tables]

    def _choose(self, requests: Sequence[ParsedRequest], table: Row, now: int) -> Made:
        decider = self._decider
        if decider.mode == "off":  # it may have been switched on elsewhere
            self._read_new()
        if self._fold.mode != decider.mode:
            self._obey()
        made = decider.choose(requests, table, now=now, rng=self._rng, hold=False)
        if decider.failure is not None:
            message = f"the policy could not choose ({decider.failure}): the baseline decided"
            decider.failure = None
            warnings.warn(message, FallbackWarning, stacklevel=4)
        return made

    def _obey(self) -> None:
        """Decide as the journal says; a mode of a newer release changes nothing."""
        for mode in MODES:
            if mode == self._fold.mode:
                self._decider.change_mode(mode)

    def _known(self, id: str) -> Decision | None:
        """The decision that was made under an id, here or elsewhere."""
        status = self._fold.entry(id)
        return self._decider.unapplied.find(id) if status is None else self._decision(status)

    def _again(self, known: Decision, rows: Any, actions: Actions | None) -> Decision:
        """A retry gets the decision that was made; another decision under its id is refused."""
        self._follower.intact = True  # as above
        check_same(known, rows_of(rows, actions, self.policy.dim, self.features))
        self._follower.intact = False
        return known
