"""Paused actions take effect in all deciders, over HTTP and with the command."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from belated import Bernoulli, EpsilonGreedy, Explicit, PerArm
from belated.cli.main import main
from belated.cli.options import actor
from belated.client import Client
from belated.core.events import ActionChanged, Decision
from belated.exceptions import InvalidInput, ServiceError
from belated.fold.requests import KeptRequest
from belated.journals import Journal, Store, open_store
from belated.service import Definition, Service
from tests.integration.processes import Process
from tests.integration.serving import served
from tests.waiting import eventually

NAMES = ["gift", "mail", "call"]
#: Seconds within which every decider obeys.
PROMISE = 2.0


# --- three processes under load -------------------------------------------------------------------


class Load:
    """A thread that decides at one decider without pause; the gift earns the most.

    Attributes:
        made: when each batch was sent, by the monotonic clock, with its actions.
    """

    def __init__(self, port: int, bandit: str) -> None:
        self.made: list[tuple[float, list[str]]] = []
        self.error: Exception | None = None
        self._stopped = threading.Event()
        self._where = f"http://127.0.0.1:{port}", bandit
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        url, bandit = self._where
        try:
            with Client(url, bandit=bandit, timeout=30.0) as client:
                while not self._stopped.is_set():
                    start = time.monotonic()
                    decisions = client.decide_many([{}] * 10, NAMES)
                    rewards = [
                        (decision.id, float(decision.action == "gift")) for decision in decisions
                    ]
                    client.observe_many(rewards)
                    self.made.append((start, [str(decision.action) for decision in decisions]))
        except Exception as error:
            self.error = error

    def since(self, moment: float) -> list[str]:
        """Return the actions of batches that were sent after a time."""
        return [
            action for sent_at, actions in self.made[:] if sent_at >= moment for action in actions
        ]

    def has_chosen(self, action: str, moment: float) -> bool:
        """Return whether an action was chosen in such batches."""
        return action in self.since(moment)

    def has_learned(self) -> bool:
        """Return whether the gift is chosen most of the time."""
        return self.since(0.0)[-30:].count("gift") >= 20

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(60)


def test_three_deciders_under_load_obey_within_two_seconds(
    dsn: str, bandit: str, tmp_path: Path, full: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of 10,000 decisions chooses it, and the probabilities of each add up to 1."""
    count, name = 10_000 if full else 1_000, bandit.replace(" ", "-")
    files = []
    for number in range(3):
        files.append(tmp_path / f"{number}.toml")
        files[-1].write_text(
            f"""
            [store]
            address = "{dsn}"
            [server]
            port = 0
            learn = {"true" if number == 0 else "false"}
            [bandits.{name}]
            policy = "DelayedThompson(dim=3, family=Bernoulli(), floor=0.1)"
            rewards = "Explicit()"
            partitions = 2
            features = "PerArm(['gift', 'mail', 'call'])"
            """,
            encoding="utf-8",
        )
    deciders = [Process(tmp_path / f"{n}.log", "serve", str(file)) for n, file in enumerate(files)]
    loads: list[Load] = []
    command = [name, "gift", "--config", str(files[0])]
    try:
        loads = [Load(decider.heard("serving")["port"], name) for decider in deciders]
        for load in loads:  # each has learned that it is the best
            eventually(load.has_learned, seconds=60)
        assert main(["action", "pause", *command, "--reason", "sold out"]) == 0
        moment = time.monotonic() + PROMISE
        eventually(
            lambda: (
                sum(len(load.since(moment)) for load in loads) >= count
                and all(load.since(moment) for load in loads)
            ),
            seconds=600,
        )
        actions = [set(load.since(moment)) for load in loads]
        assert main(["action", "resume", *command]) == 0
        resumed_at = time.monotonic() + PROMISE
        for load in loads:
            eventually(partial(load.has_chosen, "gift", resumed_at), seconds=60)
    finally:
        for load in loads:
            load.stop()
        for decider in deciders:
            decider.kill()
    assert [load.error for load in loads] == [None] * 3
    assert actions == [{"mail", "call"}] * 3
    with open_store(dsn).journal(name) as journal:
        check_journal(journal, count)


def check_journal(journal: Journal, count: int) -> None:
    """Without the paused action, the others share all of the probability."""
    paused_at = resumed_at = 0
    for record in journal.read(0, 0, 1_000_000):
        if isinstance(record.event, ActionChanged):
            if record.event.change == "pause":
                paused_at = record.recorded
            else:
                resumed_at = record.recorded
    assert 0 < paused_at < resumed_at
    pause_count = 0
    for partition in range(journal.partitions):
        records = [
            record
            for record in journal.read(partition, 0, 1_000_000)
            if isinstance(record.event, Decision)
        ]
        requests = journal.requests(partition, [record.position for record in records])
        assert len(requests) == len(records)
        for record in records:
            request, event = KeptRequest.read(requests[record.position]), record.event
            assert isinstance(event, Decision)
            assert request.actions is not None
            assert request.propensities is not None
            place = request.place(event.index, event.action)
            assert NAMES[event.index] == event.action == request.actions[place]
            assert request.propensities[place] == event.propensity
            assert sum(request.propensities) == pytest.approx(1.0, abs=1e-12)
            if paused_at + PROMISE * 1e6 < record.recorded < resumed_at:
                assert request.actions == NAMES[1:]
                pause_count += 1
    assert pause_count >= count


# --- one process ----------------------------------------------------------------------------------


@pytest.fixture
def made(bandit: str) -> Definition:
    """A bandit that explores a lot."""
    features = PerArm(NAMES)
    policy = EpsilonGreedy(features.dim, Bernoulli(), floor=0.9)
    return Definition(bandit.replace(" ", "-"), policy, Explicit(), features, baseline="gift")


@pytest.fixture
def client(made: Definition, store: Store) -> Iterator[Client]:
    """A client of a decider."""
    app = Service([made], store, seed=1)
    with served(app) as serving, Client(serving.url, bandit=made.name, timeout=30.0) as api_client:
        api_client.__dict__.update(app=app, url=serving.url)
        yield api_client


def chosen(client: Client) -> set[int | str]:
    """Return the actions that it chooses now."""
    return {decision.action for decision in client.decide_many([{}] * 100, NAMES)}


def states(client: Client) -> dict[str, str]:
    """Return the states of its actions."""
    return {action.action: action.state for action in client.state().actions}


def test_the_verbs_of_a_client(client: Any, made: Definition, store: Store) -> None:
    """Pause, retire, resume; the response and the state show the change and the reason."""
    assert states(client) == dict.fromkeys(NAMES, "open")
    assert chosen(client) == set(NAMES)
    answer = client.pause("gift", reason="sold out")
    assert (answer.action, answer.state, answer.reason) == ("gift", "paused", "sold out")
    eventually(lambda: states(client)["gift"] == "paused", seconds=PROMISE)
    assert chosen(client) == {"mail", "call"}
    client.retire("call")
    eventually(lambda: states(client)["call"] == "retired", seconds=PROMISE)
    assert chosen(client) == {"mail"}
    decision = client.decide({}, NAMES)
    assert (decision.action, decision.index, decision.propensity) == ("mail", 1, 1.0)
    with pytest.raises(InvalidInput, match="is retired"):
        client.pause("call")
    with pytest.raises(InvalidInput, match="unknown action 'gitf'; known actions: gift, mail"):
        client.pause("gitf")
    with pytest.raises(ServiceError, match=r"offered actions are paused or retired \('gift', 'c"):
        client.decide({}, ["gift", "call"])
    text = client.app.metrics.text().decode()
    assert f'belated_action_paused{{action="gift",bandit="{made.name}"}} 1.0' in text
    assert f'belated_action_paused{{action="mail",bandit="{made.name}"}} 0.0' in text
    client.resume("gift")
    client.resume("call", reason="asked for")
    eventually(lambda: set(states(client).values()) == {"open"}, seconds=PROMISE)
    assert chosen(client) == set(NAMES)
    with store.journal(made.name) as journal:
        changes = journal.actions()
    assert (changes["call"].change, changes["call"].reason) == ("resume", "asked for")


def test_times_are_obeyed(client: Any) -> None:
    """Without another change: it begins and ends by the clock."""
    begin = datetime.now(UTC) + timedelta(seconds=2)
    end = begin + timedelta(seconds=2)
    answer = client.pause("gift", start=begin, until=end)
    assert (answer.state, answer.since, answer.until) == ("open", begin, end)
    decisions = []
    while datetime.now(UTC) < end + timedelta(seconds=0.5):
        decisions += client.decide_many([{}] * 50, NAMES)
    during = [decision for decision in decisions if begin <= decision.at < end]
    outside = [decision for decision in decisions if not begin <= decision.at < end]
    assert {decision.action for decision in during} == {"mail", "call"}
    assert {decision.action for decision in outside if decision.at < begin} == set(NAMES)
    assert {decision.action for decision in outside if decision.at >= end} == set(NAMES)


def test_bodies_that_cannot_be(client: Any, made: Definition) -> None:
    """The errors use JSON field names."""
    for body, expected in (
        ({"action": "gift"}, "change"),
        ({"action": "gift", "change": "stop"}, "stop"),
        ({"action": "", "change": "pause"}, "action"),
        ({"action": "gift", "change": "resume", "until": "2999-01-01T00:00:00Z"}, "only a pause"),
        ({"action": "gift", "change": "pause", "until": "2001-01-01T00:00:00Z"}, "in the future"),
    ):
        answer = httpx.put(f"{client.url}/v1/{made.name}/actions", json=body)
        assert answer.status_code == 422, answer.text
        assert expected in answer.json()["detail"]


def test_the_command(
    client: Any,
    made: Definition,
    address: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It lists and changes actions; it needs only the store."""
    file = tmp_path / "belated.toml"
    file.write_text(
        f"""
        [store]
        address = "{address}"
        [bandits.{made.name}]
        policy = "EpsilonGreedy(dim=3, family=Bernoulli(), floor=0.9)"
        rewards = "Explicit()"
        features = "PerArm(['gift', 'mail', 'call'])"
        """,
        encoding="utf-8",
    )

    def run(*words: str) -> tuple[int, str]:
        code = main(["action", *words, "--config", str(file)])
        output = capsys.readouterr()
        return code, output.out + output.err

    code, output = run("list", made.name)
    assert (code, output.count("open")) == (0, 3)
    code, output = run(
        "pause", made.name, "gift", "--until", "2999-01-01T00:00Z", "--reason", "why"
    )
    assert code == 0
    words = output.splitlines()[1].split()
    assert words[:2] == ["gift", "paused"]
    assert words[3:] == ["2999-01-01T00:00:00Z", actor(), "why"]
    eventually(lambda: states(client)["gift"] == "paused", seconds=PROMISE)
    assert "gift" not in chosen(client)
    assert "retired" in run("retire", made.name, "gift")[1]
    assert "is retired: resume it first" in run("pause", made.name, "gift")[1]
    assert run("resume", made.name, "gift")[0] == 0
    eventually(lambda: states(client)["gift"] == "open", seconds=PROMISE)
    for words_given, expected in (
        (("pause", made.name), "the name of the action is missing"),
        (("list", made.name, "gift"), "list takes no action"),
        (("pause", made.name, "gitf"), "unknown action 'gitf'"),
        (("list", "nobody"), "has no bandit 'nobody'"),
    ):
        code, output = run(*words_given)
        assert code == 2
        assert expected in output
