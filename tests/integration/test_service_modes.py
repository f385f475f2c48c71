"""Modes learn, freeze, baseline and off take effect in all deciders, and are recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from belated import Bernoulli, DelayedUCB, Explicit
from belated.cli.main import main
from belated.cli.options import actor
from belated.core.events import Decision, ModeChanged
from belated.decider.decider import UnappliedDecisions
from belated.fold.fold import Fold
from belated.fold.published import PublishedModel
from belated.journals import Store
from belated.service import Definition, Service
from belated.service.learning.learning_service import LearningService
from tests.integration.serving import served
from tests.waiting import eventually

ROWS = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
ACTIONS = ["a", "b", "c"]
POLICY, REWARDS = DelayedUCB(2, Bernoulli()), Explicit()


@pytest.fixture
def made(bandit: str) -> Definition:
    """A bandit whose baseline is action b."""
    return Definition(bandit.replace(" ", "-"), POLICY, REWARDS, partitions=2, baseline="b")


class Decider:
    """A service, and requests to it."""

    def __init__(self, app: Service, http: httpx.Client, name: str) -> None:
        self.app, self._http, self._name = app, http, name

    def ask(self, method: str, path: str = "", body: object = None) -> httpx.Response:
        """Send one request."""
        return self._http.request(method, f"/v1/{self._name}{path}", json=body)

    def decide(self) -> dict[str, Any]:
        """Request one decision."""
        answer = self.ask("POST", "/decisions", {"rows": ROWS, "actions": ACTIONS})
        assert answer.status_code == 201, answer.text
        decision: dict[str, Any] = answer.json()
        return decision

    def reward(self, id: str) -> None:
        """Report its reward."""
        answer = self.ask("PUT", f"/decisions/{id}/reward", {"value": 1.0})
        assert answer.status_code == 202

    def change_mode(self, mode: str, reason: str = "") -> None:
        """Change the mode."""
        answer = self.ask("PUT", "/mode", {"mode": mode, "reason": reason})
        assert answer.status_code == 200, answer.text
        assert answer.json()["mode"] == mode

    @property
    def mode(self) -> str:
        """Return the reported mode."""
        return str(self.ask("GET").json()["mode"])

    @property
    def theta(self) -> list[float]:
        """Return the θ of its model."""
        coefficients: list[float] = self.app.bandits[self._name].decider.model.theta.tolist()
        return coefficients


@pytest.fixture
def one(made: Definition, store: Store) -> Iterator[Decider]:
    """A decider that learns, too."""
    app = Service([made], store, learn=True, seed=1)
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        yield Decider(app, http, made.name)


@pytest.fixture
def other(made: Definition, store: Store, one: Decider) -> Iterator[Decider]:
    """A decider that does not learn."""
    app = Service([made], store, seed=2)
    with served(app) as serving, httpx.Client(base_url=serving.url, timeout=30) as http:
        yield Decider(app, http, made.name)


def reaches(deciders: tuple[Decider, ...], mode: str, seconds: float = 10.0) -> None:
    """Wait until all of them have this mode."""
    eventually(lambda: all(decider.mode == mode for decider in deciders), seconds=seconds)


def test_frozen_deciders_have_one_model_and_learning_goes_on(
    one: Decider, other: Decider, made: Definition, store: Store, full: bool
) -> None:
    """Also a decider that starts meanwhile; afterwards they know all that has arrived."""
    one.reward(one.decide()["id"])
    eventually(lambda: one.theta == other.theta != [0.0, 0.0])
    one.change_mode("freeze", "a sale begins")
    reaches((one, other), "freeze", seconds=1.0 if full else 10.0)
    time.sleep(0.3)  # for a model that was under way
    theta = one.theta
    decisions = [decider.decide() for _ in range(10) for decider in (one, other)]
    # Nothing changes the model, so what was best stays the best, at all of them.
    assert len({decision["action"] for decision in decisions}) == 1
    for decision in decisions:
        one.reward(decision["id"])
    learner = one.app._learners.running[made.name]
    assert isinstance(learner, LearningService)
    eventually(lambda: learner.fold is not None and learner.fold.learner.model.n == 21)
    time.sleep(0.5)
    new_service = Service([made], store)
    with served(new_service):
        new_decider = new_service.bandits[made.name].decider
        assert (new_decider.mode, new_decider.model.theta.tolist()) == ("freeze", theta)
    assert one.theta == other.theta == theta
    assert all(decider.app.readyz()[0] == 200 for decider in (one, other))
    other.change_mode("learn")
    eventually(lambda: one.theta == other.theta != theta)
    eventually(lambda: one.app.bandits[made.name].decider.model.n == 21)


def test_baseline_and_off(one: Decider, other: Decider, made: Definition, store: Store) -> None:
    """The baseline, with its true propensity; then no decisions, but rewards are accepted."""
    decision_before = one.decide()
    other.change_mode("baseline")
    reaches((one, other), "baseline")
    answers = [decider.decide() for _ in range(5) for decider in (one, other)]
    assert {(decision["action"], decision["propensity"]) for decision in answers} == {("b", 1.0)}
    other.change_mode("off", "a bug in prices")
    reaches((one, other), "off")
    response = one.ask("POST", "/decisions", {"rows": ROWS})
    assert (response.status_code, response.headers["retry-after"]) == (503, "60")
    one.reward(decision_before["id"])
    assert one.app.readyz()[0] == 200
    text = one.app.metrics.text().decode()
    assert f'belated_mode{{bandit="{made.name}",mode="off"}} 1.0' in text
    eventually(lambda: one.app.bandits[made.name].decider.model.n == 1)  # it is learned too
    refusal = one.ask("PUT", "/mode", {"mode": "on"})
    assert refusal.status_code == 422
    with store.journal(made.name) as journal:
        records = [record for p in range(2) for record in journal.read(p, 0, 1000)]
        mode_change = journal.mode()
    assert mode_change is not None
    assert (mode_change.mode, mode_change.reason) == ("off", "a bug in prices")
    decisions = [record.event for record in records if isinstance(record.event, Decision)]
    assert sum(event.action == "b" and event.propensity == 1.0 for event in decisions) >= 10


def test_the_fold_passes_over_a_change_of_mode(
    one: Decider, made: Definition, store: Store
) -> None:
    """Digest and estimate are as if the mode had not changed."""
    for mode in ("baseline", "learn", "freeze"):
        one.reward(one.decide()["id"])
        one.change_mode(mode)
    folds = Fold(POLICY, REWARDS, partitions=2), Fold(POLICY, REWARDS, partitions=2)
    with store.journal(made.name) as journal:
        for partition in range(2):
            for record in journal.read(partition, 0, 1000):
                folds[0].take(record)
                if not isinstance(record.event, ModeChanged):
                    folds[1].take(record)
    assert folds[0].digest == folds[1].digest
    assert folds[0].counters["switched"] == 3
    for fold in folds:
        fold.learner.fit()
    np.testing.assert_array_equal(folds[0].model.theta, folds[1].model.theta)


def test_the_command(
    one: Decider, made: Definition, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It shows and changes the mode; it needs only the store."""
    file = tmp_path / "belated.toml"
    file.write_text(
        f"""
        [store]
        address = "{address}"
        [bandits.{made.name}]
        policy = "DelayedUCB(dim=2, family=Bernoulli())"
        rewards = "Explicit()"
        baseline = "b"
        """,
        encoding="utf-8",
    )
    assert main(["mode", made.name, "--config", str(file)]) == 0
    assert capsys.readouterr().out == f"{made.name}: learn: decides with the newest model\n"
    assert main(["mode", made.name, "baseline", "--config", str(file), "--reason", "a test"]) == 0
    message = f"{made.name}: baseline: decides without a model (before: learn)\n"
    assert capsys.readouterr().out == message
    reaches((one,), "baseline")
    assert one.decide()["action"] == "b"
    assert main(["mode", made.name, "--config", str(file)]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{made.name}: baseline: decides without a model (since 20")
    assert output.endswith(f"; by {actor()}; reason: a test)\n")
    assert main(["mode", "nobody", "off", "--config", str(file)]) == 2
    assert "has no bandit 'nobody'" in capsys.readouterr().err


def test_a_model_that_takes_long_is_loaded_rarely(
    one: Decider, made: Definition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that requests hardly ever wait for it; changes of mode still take effect at once."""
    bandit = one.app.bandits[made.name]
    load = bandit._source.load

    def slowly(published: PublishedModel, unapplied: UnappliedDecisions) -> None:
        time.sleep(0.03)
        load(published, unapplied)

    monkeypatch.setattr(bandit._source, "load", slowly)
    models_before, start = bandit.stats.models, time.monotonic()
    while time.monotonic() - start < 2.0:
        one.reward(one.decide()["id"])  # so that there is a newer one all the time
    assert bandit.stats.models - models_before <= 2
    one.change_mode("freeze")
    reaches((one,), "freeze")
    one.change_mode("learn")
    eventually(lambda: bandit.version > 0 and bandit.stats.models - models_before > 2)
