"""Bugs that are easily made in a service that decides: the simulator must find them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from belated.decider import Decider
from belated.decider.unapplied import UnappliedDecisions
from belated.events import Event
from belated.journals import Journal
from belated.journals.log import Appended, Requests
from belated.journals.memory.coordination import MemoryCoordinationStore
from belated.learner import Fold
from belated.service.learning.learning_service import LearningService
from belated.service.serving import group_commit, request_batcher
from belated.service.serving.group_commit import Append, GroupCommit
from belated.service.serving.request_batcher import RequestBatcher
from belated.service.serving.served_bandit import ServedBandit
from tests.simulator.session import SimulatedJournal

Plant = Callable[[pytest.MonkeyPatch], None]


def standing_decision_not_answered(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes second under an id is told what was chosen for it, not what stands."""
    durable = request_batcher._Batch.durable
    patch.setattr(
        request_batcher._Batch,
        "durable",
        lambda self, positions, standing: durable(self, positions, {}),
    )


def requests_of_others(patch: pytest.MonkeyPatch) -> None:
    """In a commit of several, a decision gets what another one was chosen from."""
    append = SimulatedJournal.append

    def shifted(
        self: SimulatedJournal,
        events: Sequence[Event],
        *,
        recorded: Sequence[int] | None = None,
        requests: Requests | None = None,
    ) -> list[int]:
        if requests and len(requests) > 1:
            turned = list(requests.values())
            requests = dict(zip(requests, turned[1:] + turned[:1], strict=True))
        return append(self, events, recorded=recorded, requests=requests)

    patch.setattr(SimulatedJournal, "append", shifted)


def answer_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Callers hear that their events are durable before they are."""
    commit = GroupCommit._commit

    def eager(self: GroupCommit, taken: list[Append]) -> None:
        positions = Appended([0] * sum(len(one.events) for one in taken), {})
        self._loop.call_soon_threadsafe(group_commit._tell, [(taken, positions)])
        commit(self, taken)

    patch.setattr(GroupCommit, "_commit", eager)


def answers_mixed_up(patch: pytest.MonkeyPatch) -> None:
    """Decisions of one turn go to the callers in another order."""
    choose = RequestBatcher._choose

    def mixed(self: RequestBatcher) -> None:
        batches = list(self._waiting)
        choose(self)
        if len(batches) > 1:
            first, last = batches[0], batches[-1]
            first._done, last._done = last._done, first._done

    patch.setattr(RequestBatcher, "_choose", mixed)


def failed_decision_still_counted(patch: pytest.MonkeyPatch) -> None:
    """What could not be committed stays pending in the model."""
    patch.setattr(Decider, "discard", lambda self, decision: None)


def unapplied_decisions_dropped(patch: pytest.MonkeyPatch) -> None:
    """A model that is loaded replaces all that was counted here."""
    forget = UnappliedDecisions.forget_read

    def hasty(self: UnappliedDecisions, positions: Sequence[int]) -> None:
        forget(self, [1 << 60] * len(positions))

    patch.setattr(UnappliedDecisions, "forget_read", hasty)


def summed_decisions_dropped(patch: pytest.MonkeyPatch) -> None:
    """Of very many unapplied decisions the oldest are let go."""
    compact = UnappliedDecisions.compact

    def careless(self: UnappliedDecisions) -> None:
        compact(self)
        self._blocks.clear()

    patch.setattr(UnappliedDecisions, "compact", careless)


def delivery_not_noted(patch: pytest.MonkeyPatch) -> None:
    """Nobody hears that a spooled decision has its position now."""
    patch.setattr(ServedBandit, "_delivered", lambda self, events, positions: None)


def models_of_anyone(patch: pytest.MonkeyPatch) -> None:
    """Nobody looks whether the learner that publishes a model still leads."""

    def publish(self: MemoryCoordinationStore, data: bytes, epoch: int) -> int:
        self._lead.number, self._lead.data = self._lead.number + 1, data
        return self._lead.number

    patch.setattr(MemoryCoordinationStore, "publish", publish)


def mode_ignored(patch: pytest.MonkeyPatch) -> None:
    """Deciders go on as before."""
    patch.setattr(Decider, "change_mode", lambda self, mode: None)


def frozen_models_go_on(patch: pytest.MonkeyPatch) -> None:
    """The learner does not look at the mode."""
    publish = LearningService._publish

    def blind(self: LearningService, fold: Fold) -> None:
        journal = self.journal
        self.journal = cast(Journal, SimpleNamespace(mode=lambda: None))
        try:
            publish(self, fold)
        finally:
            self.journal = journal

    patch.setattr(LearningService, "_publish", blind)


SERVICE_PLANTS: list[Plant] = [
    standing_decision_not_answered,
    requests_of_others,
    answer_before_the_commit,
    answers_mixed_up,
    failed_decision_still_counted,
    unapplied_decisions_dropped,
    summed_decisions_dropped,
    delivery_not_noted,
    models_of_anyone,
    mode_ignored,
    frozen_models_go_on,
]
