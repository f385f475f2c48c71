"""A client goes on while the service is stopped, and the service then knows what was decided."""

from __future__ import annotations

import warnings

import pytest

from belated import Bernoulli, DelayedUCB, Explicit, Holdout, PerArm
from belated.client import Client
from belated.core.events import Decision
from belated.exceptions import FallbackWarning
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.serving import Serving
from tests.waiting import eventually

NAMES = ["gift", "mail"]
FEATURES = PerArm(NAMES)


def test_decisions_of_an_outage_are_recorded(store: Store, bandit: str) -> None:
    """As they were made, and once; their rewards are learned, whichever comes first."""
    name = bandit.replace(" ", "-")
    policy = DelayedUCB(FEATURES.dim, Bernoulli(), floor=0.2)
    definition = Definition(
        name, policy, Explicit(), FEATURES, holdout=Holdout(0.5, "uniform"), subject="user"
    )
    serving = Serving()
    serving.start(Service([definition], store, learn=True))
    client = Client(serving.url, bandit=name, retries=0, fallback="mail")
    try:
        first = client.decide({"user": "u1"}, NAMES)
        assert not first.fallback
        serving.stop()
        with pytest.warns(FallbackWarning, match="used the fallback 'mail'"):
            decisions = client.decide_many([{"user": f"u{n}"} for n in range(20)], NAMES)
        assert all(decision.fallback for decision in decisions)
        serving.start(Service([definition], store, learn=True))
        eventually(lambda: client.observe(decisions[0].id, 1.0).status == "accepted")
        client.pause("mail", reason="what was shown is recorded all the same")
        client.decide({"user": "u1"}, ["gift"], fallback="gift")
        client.observe(decisions[1].id, 1.0)
        eventually(lambda: client.state().observations == 2)
        details = [client.entry(decision.id) for decision in decisions]
        for decision, entry in zip(decisions, details, strict=True):
            assert entry.decision is not None
            assert (entry.decision.source, entry.decision.fallback) == ("fallback", True)
            assert (entry.decision.action, entry.decision.index) == ("mail", decision.index)
            assert (entry.decision.at, entry.decision.propensity) == (decision.at, 1.0)
        assert [entry.state for entry in details[:3]] == ["rewarded", "rewarded", "pending"]
        assert details[5].subject == "u5"
        retry = client.decide({"user": "u3"}, NAMES, id=decisions[3].id)
        assert (retry.action, retry.fallback) == ("mail", True)
        with store.journal(name) as journal:
            events = [record.event for record in journal.read(0, 0, 1_000)]
        fallbacks = [
            event for event in events if isinstance(event, Decision) and event.source == "fallback"
        ]
        assert [decision.group for decision in fallbacks] == [""] * 20
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            client.close()
        serving.stop()
