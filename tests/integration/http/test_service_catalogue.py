"""Actions of a catalogue over HTTP: offered by name, without a record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from belated import Category, DelayedUCB, Explicit, Gaussian, Number, Shared
from belated.client import Client
from belated.evaluation.journal import JournalLog
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.operating.config import parse_config
from tests.integration.http.bandits import JSON, problem_in
from tests.integration.serving import served

OFFERS: dict[str, Any] = {f"offer {n}": {"price": n, "brand": "AB"[n % 2]} for n in range(1, 50)}
FIELDS = {"price": Number(1, 50, log=True), "brand": Category(["A", "B"])}
PLAIN = Shared(context={"age": Number(18, 90)}, action=FIELDS)
ADULT = {"age": 41}


def test_actions_are_offered_by_name(store: Store, bandit: str) -> None:
    """Or not at all: then all are. Fields of a request replace those of the catalogue."""
    features = replace(PLAIN, catalogue=OFFERS)
    policy = DelayedUCB(features.dim, Gaussian(), floor=0.5)
    definition = Definition(bandit, policy, Explicit(), features=features, keep_requests=1.0)
    names = ["offer 3", "offer 8", "offer 20"]
    expected = PLAIN.rows(ADULT, {name: OFFERS[name] for name in names})
    path = f"/v1/{bandit}/decisions"
    with (
        served(Service([definition], store)) as serving,
        httpx.Client(base_url=serving.url, headers=JSON) as http,
        Client(serving.url, bandit=bandit) as client,
    ):
        for n in range(60):
            decision = client.decide(ADULT, names, id=f"named-{n}")
            client.observe(decision.id, float(n % 2))
        assert client.decide(ADULT, names, id="named-0").action in names
        response: Any = http.post(path, json={"context": ADULT, "id": "all"})
        assert response.status_code == 201, response.text
        sale: dict[str, Any] = {
            "offer 3": {"price": 50},
            "hat": {"price": 9, "brand": "C"},
            "offer 8": None,
        }
        answer = http.post(path, json={"context": ADULT, "actions": sale, "id": "sale"})
        assert answer.status_code == 201, answer.text
        for id, rows in [
            ("named-0", expected),
            ("all", PLAIN.rows(ADULT, OFFERS)),
            (
                "sale",
                PLAIN.rows(
                    ADULT,
                    sale | {"offer 3": {"price": 50, "brand": "B"}, "offer 8": OFFERS["offer 8"]},
                ),
            ),
        ]:
            entry = client.entry(id)
            assert entry.decision is not None
            assert np.array_equal(entry.decision.x, rows[entry.decision.index])
        entry = client.entry("all")
        assert entry.request is not None
        assert (entry.request.actions, entry.request.records) == ([*OFFERS], None)
        refusal = http.post(path, json={"context": ADULT, "actions": ["offer 3", "shoe"]})
        assert refusal.status_code == 422
        assert "'shoe' is not in the catalogue" in (problem_in(refusal).detail or "")
    with store.journal(bandit) as journal:
        evaluation = JournalLog(journal, Gaussian(), Explicit(), features=features)
        assert evaluation.evaluate("uniform").decisions == 62


def test_a_file_names_a_catalogue(tmp_path: Path) -> None:
    """Beside the features that read its records."""
    file = tmp_path / "offers.json"
    file.write_text(json.dumps(OFFERS), encoding="utf-8")
    config = parse_config(
        f"""
        [store]
        address = "sqlite:///{tmp_path}/belated.db"
        [bandits.offers]
        rewards = "Explicit"
        features = {json.dumps(repr(PLAIN))}
        catalogue = "{file}"
        """
    )
    features = config.bandits[0].features
    assert isinstance(features, Shared)
    assert (features.catalogue, features) == (OFFERS, PLAIN)
