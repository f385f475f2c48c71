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
        request = {"id": "again", "context": {"age": 0.5, "customer": "c1"}}
        decisions = [http.post(f"/v1/{NAME}/decisions", json=request).json() for _ in range(2)]
        assert decisions[0]["action"] == decisions[1]["action"]
        assert http.post(f"/v1/{NAME}/decisions", json={"context": {"age": 0.5}}).is_client_error
    with store.journal(NAME) as journal:
        evaluation = JournalLog(journal, Bernoulli(), OFFERS.rewards, None, FEATURES)
        frame = frame_of_table(evaluation.table(), journal)
        assert len(frame) == 81
        customers = frame["request"].map(lambda logged: logged["context"]["customer"])
        assert (frame.groupby(customers)["group"].nunique() == 1).all()
        assert set(frame["group"]) == {"bandit", "holdout"}
        holdout_rows = frame[frame["group"] == "holdout"]
        assert set(holdout_rows["action"]) == {"blue"}
        assert set(holdout_rows["source"]) == {"holdout"}
        assert holdout_rows["overall"].between(0.5, 1.0).all()
        result = lift(evaluation.table())
        assert result.bandit.decisions + result.holdout.decisions == 81
        assert result.difference == pytest.approx(result.bandit.value - result.holdout.value)
