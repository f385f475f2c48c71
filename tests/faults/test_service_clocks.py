"""A service whose clock jumps by a day: windows end by the time of the journal all the same."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from itertools import chain

import httpx
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB
from belated.core.events import Decision, Settled
from belated.fold.fold import Fold
from belated.journals import PostgresJournal
from belated.journals.steady_clock import system_clock
from belated.service import Definition, Service
from belated.service.learning.learning_service import LearningService
from tests.faults.town import check_saved
from tests.integration.postgres_server import PostgresServer
from tests.integration.serving import served
from tests.waiting import eventually

#: In microseconds.
DAY = 86_400_000_000
POLICY, ROWS = DelayedUCB(2, Bernoulli()), [[1.0, 0.0], [0.0, 1.0]]
EACH = 10


@pytest.mark.parametrize(
    ("jump", "window", "state"),
    [(DAY, timedelta(hours=1), "pending"), (-DAY, timedelta(seconds=2), "defaulted")],
    ids=["ahead", "back"],
)
def test_clock_jumps_by_a_day(
    doomed: PostgresServer, jump: int, window: timedelta, state: str
) -> None:
    """Ahead it ends no window, back it keeps none open; no delay is negative, nothing is lost."""
    offset = 0
    rewards = DefaultAfter(window)
    definition = Definition("offers", POLICY, rewards, partitions=2)
    app = Service([definition], doomed.dsn, learn=True, clock=lambda: system_clock() + offset)
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:

        def decide() -> str:
            answer = http.post("/v1/offers/decisions", json={"rows": ROWS})
            assert answer.status_code == 201
            return str(answer.json()["id"])

        ids = [decide() for _ in range(EACH)]
        offset = jump
        ids += [decide() for _ in range(EACH)]
        for id in ids[::2]:
            path = f"/v1/offers/decisions/{id}/reward"
            assert http.put(path, json={"value": 1.0}).status_code == 202
        offers = app.bandits["offers"]
        eventually(lambda: offers.decider.model.n == (EACH if state == "pending" else 2 * EACH))
        time.sleep(1)  # whoever believes such a clock goes on writing that time has passed
        learner = app._learners.running["offers"]
        assert isinstance(learner, LearningService)
        delays = learner.delays
        assert (delays.cumulative[-1], 0 <= delays.total < 60) == (EACH, True)
    with PostgresJournal(doomed.dsn, bandit="offers") as journal:
        fold = partial(Fold, POLICY, rewards, partitions=2)
        saved_fold, records = check_saved(journal, fold, 3 * EACH)
    assert saved_fold.counts == dict.fromkeys(saved_fold.counts, 0) | {
        "rewarded": EACH,
        state: EACH,
    }
    events = [record.event for record in chain.from_iterable(records)]
    times = [event.at_us for event in events if isinstance(event, Decision)]
    assert abs(max(times) - min(times) - DAY) < DAY / 100  # so it was that clock
    settlements = [event for event in events if isinstance(event, Settled)]
    assert len(settlements) <= (0 if state == "pending" else 3 * EACH)
