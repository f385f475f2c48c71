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
    made = Definition(
        name, policy, Explicit(), FEATURES, holdout=Holdout(0.5, "uniform"), subject="user"
    )
    serving = Serving()
    serving.start(Service([made], store, learn=True))
    client = Client(serving.url, bandit=name, retries=0, fallback="mail")
    try:
        before = client.decide({"user": "u1"}, NAMES)
        assert not before.fallback
        serving.stop()
        with pytest.warns(FallbackWarning, match="used the fallback 'mail'"):
            decisions = client.decide_many([{"user": f"u{n}"} for n in range(20)], NAMES)
        assert all(one.fallback for one in decisions)
        serving.start(Service([made], store, learn=True))
        eventually(lambda: client.observe(decisions[0].id, 1.0).status == "accepted")
        client.pause("mail", reason="what was shown is recorded all the same")
        client.decide({"user": "u1"}, ["gift"], fallback="gift")
        client.observe(decisions[1].id, 1.0)
        eventually(lambda: client.state().observations == 2)
        details = [client.entry(one.id) for one in decisions]
        for decision, found in zip(decisions, details, strict=True):
            assert found.decision is not None
            assert (found.decision.source, found.decision.fallback) == ("fallback", True)
            assert (found.decision.action, found.decision.index) == ("mail", decision.index)
            assert (found.decision.at, found.decision.propensity) == (decision.at, 1.0)
        assert [one.state for one in details[:3]] == ["rewarded", "rewarded", "pending"]
        assert details[5].subject == "u5"
        again = client.decide({"user": "u3"}, NAMES, id=decisions[3].id)
        assert (again.action, again.fallback) == ("mail", True)
        with store.journal(name) as journal:
            events = [record.event for record in journal.read(0, 0, 1_000)]
        fallbacks = [
            one for one in events if isinstance(one, Decision) and one.source == "fallback"
        ]
        assert [one.group for one in fallbacks] == [""] * 20
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            client.close()
        serving.stop()
