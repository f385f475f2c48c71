"""What a service costs: asked by few callers and by many, deciding alone and learning too."""

from __future__ import annotations

import time
from itertools import pairwise

from belated.planning.arithmetic import came_meanwhile, learner_rounds
from belated.planning.costs import Linear, ServiceCosts
from belated.planning.serving import (
    MeasuredService,
    Used,
    ask_all,
    decision_calls,
    reward_calls,
)
from belated.planning.traffic import Traffic
from belated.service.learning.learning_service import PUBLISH

#: Requests that come one at a time, so many a second.
FEW, PACE = 300, 200.0
#: Requests of many callers at once, and rewards of some of them.
MANY, REWARDED, CALLERS = 2_000, 512, 64
#: Requests that do not count.
WARM = 256
#: Seconds for which a service is left alone.
IDLE = 1.0


def service_costs(
    traffic: Traffic,
    address: str,
    *,
    commit: Linear,
    wait: Linear,
    event: float,
    publish: float,
) -> ServiceCosts:
    """Measure a service on a store.

    Args:
        traffic: Whose policy decides.
        address: Of the store.
        commit: CPU of a commit, for its share by the event.
        wait: Time of a commit, for the same.
        event: CPU of a learner for an event.
        publish: CPU of a model.
    """
    policy = traffic.policy
    calls = decision_calls(MANY, policy.dim, traffic.actions)
    with MeasuredService(policy, address) as service:
        ask_all(service, calls[:WARM], CALLERS)  # the first ones take longer
        service.rest()
        marks = [service.used()]
        time.sleep(IDLE)
        marks.append(service.used())
        ask_all(service, calls[:FEW], CALLERS, rate=PACE)
        marks.append(service.used())
        ids = ask_all(service, calls, CALLERS)
        marks.append(service.used())
        ask_all(service, reward_calls(ids[:REWARDED]), CALLERS)
        marks.append(service.used())
    idle, few, many, rewarded = (after.since(before) for before, after in pairwise(marks))
    with MeasuredService(policy, address, learn=True) as service:
        ask_all(service, calls[:WARM], CALLERS)
        service.rest()  # what was there before is learned by now
        before = service.used()
        ask_all(service, calls[:FEW], CALLERS, rate=PACE)
        learned = service.used().since(before)
    seconds = FEW / PACE
    learning = learned.cpu - few.cpu - FEW * event - publish * seconds / PUBLISH
    found = max(0.0, learning / (seconds * learner_rounds(PACE)))
    size = learned.events / learned.commits
    turn = Linear(max(0.0, came_meanwhile(size) / PACE - wait.each * size), wait.each)
    return ServiceCosts(*_solved(few, many, rewarded, commit), idle.cpu / IDLE, found, turn)


def _solved(few: Used, many: Used, rewarded: Used, commit: Linear) -> tuple[float, float, float]:
    """Two measurements for two unknowns: what a decision costs, and what a commit does."""
    each = [one.cpu / one.events - commit.each for one in (few, many)]
    commits = [one.commits / one.events for one in (few, many)]
    turn = max(0.0, (each[0] - each[1]) / max(1e-9, commits[0] - commits[1]))
    # Callers that wait for their commits together: what they cost is mostly their own.
    reward = (rewarded.cpu - commit.fixed * rewarded.commits) / REWARDED - commit.each
    return max(0.0, each[1] - turn * commits[1]), max(0.0, reward), turn
