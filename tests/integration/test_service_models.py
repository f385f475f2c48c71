"""Earlier models take effect in all deciders, over HTTP and with the command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from belated import Bandit, Bernoulli, DelayedUCB, Explicit, PerArm
from belated.cli.main import main
from belated.client import Client
from belated.exceptions import InvalidInput
from belated.fold.published import PublishedModel
from belated.journals import Store
from belated.service import Definition, Service
from tests.integration.serving import served
from tests.waiting import eventually

NAMES = ["gift", "mail"]
FEATURES = PerArm(NAMES)
POLICY = DelayedUCB(FEATURES.dim, Bernoulli(), floor=0.2)


@pytest.fixture
def name(bandit: str) -> str:
    """A separate bandit."""
    return bandit.replace(" ", "-")


@pytest.fixture
def clients(name: str, store: Store) -> Iterator[list[Client]]:
    """Two deciders, the first of which learns."""
    with ExitStack() as stack:
        definition = Definition(name, POLICY, Explicit(), FEATURES)
        apps = [Service([definition], store, learn=learn, seed=1) for learn in (True, False)]
        servings = [stack.enter_context(served(app)) for app in apps]
        yield [stack.enter_context(Client(serving.url, bandit=name)) for serving in servings]


def learn(client: Client, count: int, value: float) -> int:
    """Have this many decisions rewarded; return the version of the model with them."""
    count_before = max((model.observations for model in client.models()), default=0)
    decisions = client.decide_many([{}] * count)
    client.observe_many([(decision.id, value) for decision in decisions])

    def knows() -> bool:
        return any(model.observations == count_before + count for model in client.models()[:1])

    eventually(knows, seconds=60)
    return client.models()[0].version


def decide_with(clients: list[Client]) -> set[int]:
    """Return the models of some decisions."""
    return {client.decide({}).model for client in clients}


def use(clients: list[Client], version: int, reason: str = "") -> None:
    """Choose a model, and wait until all deciders know of it."""
    clients[0].use_model(version, reason=reason)
    eventually(lambda: all(client.state().chosen_version == version for client in clients))


def test_all_deciders_use_the_chosen_model(clients: list[Client], name: str, store: Store) -> None:
    """Although newer ones are published, until the next change; the journal says who and why."""
    version = learn(clients[0], 20, 1.0)
    client = clients[0]
    use(clients, version, reason="prices are wrong")
    assert decide_with(clients) == {version}
    for _ in range(2):  # learning goes on
        newest = learn(client, 20, 0.0)
        assert newest > version
        assert decide_with(clients) == {version}
    states = [(model.version, model.state) for model in client.models()]
    assert (version, "chosen") in states
    assert states[0][1] == "latest"
    assert [decider.state().chosen_version for decider in clients] == [version] * 2
    assert [decider.state().version for decider in clients] == [version] * 2
    with closing(store.session()) as session:
        event = session.chosen_models({name: 0})[name][1]
    assert (event.version, event.reason, event.actor) == (version, "prices are wrong", "")
    client.use_model("latest", reason="prices are repaired")
    eventually(lambda: min(decide_with(clients)) >= newest)
    assert client.state().chosen_version is None
    with pytest.raises(InvalidInput, match=r"no model version 7; known versions: \d+"):
        client.use_model(7)


def test_a_decider_that_starts_uses_the_chosen_model(
    clients: list[Client], name: str, store: Store
) -> None:
    """From its first decision; so does a program on the same journal, and a view of the past."""
    version = learn(clients[0], 20, 1.0)
    use(clients, version)
    learn(clients[0], 20, 0.0)
    with (
        served(Service([Definition(name, POLICY, Explicit(), FEATURES)], store)) as decider,
        Client(decider.url, bandit=name) as client,
    ):
        assert client.decide({}).model == version
    with Bandit(
        policy=POLICY, rewards=Explicit(), features=FEATURES, journal=store.journal(name)
    ) as bandit:
        assert bandit.decide({}).model == version
        decided_at = bandit.decide({}).at
        with closing(store.session()) as session:
            event = session.chosen_models({name: 0})[name][1]
        clients[0].use_model("latest")
        bandit.sync()
        assert bandit.decide({}).model > version
        old_bandit = bandit.as_of(decided_at)
        assert old_bandit._decider.model.theta.tobytes() == PublishedModel.read(event.model).theta


def test_the_command(
    clients: list[Client],
    name: str,
    store: Store,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It lists the models, chooses one and the newest again, and reports errors."""
    address = getattr(store, "address", None)
    if address is None:
        pytest.skip("a command cannot open this store")
    file = tmp_path / "belated.toml"
    file.write_text(
        f"""
        [store]
        address = "{address}"
        [bandits.{name}]
        policy = "DelayedUCB(dim=2, family=Bernoulli(), floor=0.2)"
        rewards = "Explicit()"
        features = "PerArm(['gift', 'mail'])"
        """,
        encoding="utf-8",
    )
    version, config = learn(clients[0], 20, 1.0), ["--config", str(file)]
    assert main(["model", "list", name, *config]) == 0
    listing = capsys.readouterr().out
    assert "decides with the latest model" in listing
    assert str(version) in listing
    assert main(["model", "use", name, str(version), "--reason", "prices", *config]) == 0
    assert "reason: prices" in capsys.readouterr().out
    eventually(lambda: decide_with(clients) == {version})
    learn(clients[0], 5, 0.0)
    assert main(["model", "use", name, "latest", *config]) == 0
    eventually(lambda: min(decide_with(clients)) > version)
    for arguments in (["use", name], ["list", name, "5"], ["use", name, "old"], ["use", name, "7"]):
        assert main(["model", *arguments, *config]) == 2
