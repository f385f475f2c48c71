"""A holdout of a service: drawn by customer, marked in the journal, and evaluated as a lift."""

from __future__ import annotations

import httpx
import pytest

from belated import Bernoulli, DefaultAfter, DelayedUCB, Holdout, PerArm
from belated.evaluation.files import frame_of_table
from belated.evaluation.journal import JournalLog
from belated.evaluation.lifts import lift
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.serving import served

NAME = "held"
FEATURES = PerArm(["red", "blue"], context=["age"])
OFFERS = Definition(
    NAME,
    DelayedUCB(FEATURES.dim, Bernoulli(), floor=0.2),
    DefaultAfter("1d"),
    FEATURES,
    holdout=Holdout(0.5, "blue", by="customer"),
)


def test_customers_are_held_out_as_a_whole(store: Store) -> None:
    """One by one and in batches; a retry gets the same decision."""
    with served(Service([OFFERS], store)) as serving, httpx.Client(base_url=serving.url) as http:
        for n in range(8):
            requests = [
                {"id": f"{n}-{k}", "context": {"age": 0.5, "customer": f"c{k}"}} for k in range(10)
            ]
            answer = http.post(f"/v1/{NAME}/decisions/batch", json={"requests": requests})
            assert answer.status_code in (200, 201), answer.text
            for k in range(9):
                body = {"value": 1.0}
                assert http.put(f"/v1/{NAME}/decisions/{n}-{k}/reward", json=body).is_success
        first = {"id": "again", "context": {"age": 0.5, "customer": "c1"}}
        made = [http.post(f"/v1/{NAME}/decisions", json=first).json() for _ in range(2)]
        assert made[0]["action"] == made[1]["action"]
        assert http.post(f"/v1/{NAME}/decisions", json={"context": {"age": 0.5}}).is_client_error
    with store.journal(NAME) as journal:
        evaluation = JournalLog(journal, Bernoulli(), OFFERS.rewards, None, FEATURES)
        frame = frame_of_table(evaluation.table(), journal)
        assert len(frame) == 81
        customers = frame["request"].map(lambda one: one["context"]["customer"])
        assert (frame.groupby(customers)["group"].nunique() == 1).all()
        assert set(frame["group"]) == {"bandit", "holdout"}
        held = frame[frame["group"] == "holdout"]
        assert set(held["action"]) == {"blue"}
        assert set(held["source"]) == {"holdout"}
        assert held["overall"].between(0.5, 1.0).all()
        found = lift(evaluation.table())
        assert found.bandit.decisions + found.holdout.decisions == 81
        assert found.difference == pytest.approx(found.bandit.value - found.holdout.value)
