"""One run against a service, in step with its learner, honestly or with an attacker beside.

Offers are decided step by step, and no step begins before the model knows all that was told: so
a run depends on what was learned, and not on when. The policy must learn by steps alone
(``Online``), for a fit of all rewards ends at a moment of its own.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any, NamedTuple
from urllib.request import urlopen

from belated.delays import DelayProcess
from belated.journals.steady_clock import system_clock
from belated.simulation.environments import Environment
from experiments.forged.attacker import Attacker
from experiments.forged.worlds import FORGED, REPLAYED, STEP
from experiments.over_http.player import arrivals_of, streams
from experiments.serving import Caller
from tests.waiting import eventually

#: Records before the first round: what the bandit is, a decision and its reward.
BEFORE = 3


class Played(NamedTuple):
    """What a run came to.

    Attributes:
        regret: after all rounds.
        choices: the action of each round.
        told: rewards that were reported honestly.
        learned: rewards that the model knows at the end.
        answers: to the attacker, by kind and what was answered.
    """

    regret: float
    choices: list[int]
    told: int
    learned: int
    answers: Counter[tuple[str, str]]


def play(
    port: int,
    bandit: str,
    world: Environment,
    delay: DelayProcess,
    *,
    horizon: int,
    seed: int,
    attacked: bool,
) -> Played:
    """Contexts, luck and delays come from the same streams of the seed as in a simulation."""
    contexts, luck, waits, draws = streams(seed)
    uniform = luck.random(horizon)
    arrivals = arrivals_of(delay, horizon, waits)
    caller, path = Caller(port), f"/v1/{bandit}"
    attacker = Attacker(caller, bandit, system_clock())
    _begin(port, bandit, caller, world.dim)
    rounds = world.rounds(horizon, contexts)
    choices: list[int] = []
    truth: list[dict[str, Any]] = []
    regret, reported = 0.0, 0
    while step := list(islice(rounds, STEP)):
        start = len(truth)
        offers = [{"rows": rows.tolist()} for rows, _ in step]
        decisions = caller.tell("POST", f"{path}/decisions/batch", {"requests": offers})[
            "decisions"
        ]
        for entry, (_, means) in zip(decisions, step, strict=True):
            mean = float(means[entry["index"]])
            value = world.reward(mean, float(uniform[len(truth)]))
            truth.append({"id": entry["id"], "value": value, "token": entry.get("token")})
            choices.append(entry["index"])
            regret += float(means.max()) - mean
        if attacked:  # before the truth is told
            for k in draws.choice(len(step), FORGED, replace=False).tolist():
                entry, means = decisions[k], step[k][1]
                attacker.forge(entry["id"], is_best=means[entry["index"]] == means.max())
        rewards = [truth[s] for t in range(start, len(truth)) for s in arrivals.pop(t + 1, ())]
        if rewards:
            caller.tell("POST", f"{path}/rewards/batch", {"rewards": rewards})
        reported += len(rewards)
        if attacked:
            for entry in rewards[:REPLAYED]:
                attacker.replay(**entry)
        records = BEFORE + len(truth) + reported + attacker.taken
        state = _state_at(records, caller, path)
    caller.close()
    return Played(regret, choices, reported, state["observations"] - 1, attacker.answers)


def _begin(port: int, bandit: str, caller: Caller, dim: int) -> None:
    """Have the learner's only fit over, which follows the first reward: of a row of zeros."""
    path = f"/v1/{bandit}/decisions"
    decision = caller.tell("POST", path, {"rows": [[0.0] * dim]})
    reward = {"value": 0.0, "token": decision.get("token")}
    caller.tell("PUT", f"{path}/{decision['id']}/reward", reward)
    metric = f'belated_fit_seconds_count{{bandit="{bandit}"}} 1.0'

    def is_over() -> bool:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            return metric in answer.read().decode()

    eventually(is_over, f"{bandit} has not been fitted", seconds=120, pause=0.05)


def _state_at(records: int, caller: Caller, path: str) -> dict[str, Any]:
    """How the bandit stands, once its model knows so many records."""
    state: dict[str, Any] = {}

    def is_so() -> bool:
        state.update(caller.tell("GET", path))
        return bool(state["version"] == records)

    eventually(is_so, f"{path} has not learned {records} records", seconds=120, pause=0.02)
    return state
