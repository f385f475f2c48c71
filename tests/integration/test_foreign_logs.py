"""Logs of other systems become journals that can be evaluated."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

from belated import Bandit, Bernoulli, DefaultAfter, DelayedThompson
from belated.cli.main import main
from belated.evaluation.journal import JournalLog
from belated.evaluation.logs import read_dsjson
from belated.evaluation.sources import read_journal
from belated.fold.requests import KeptRequest
from belated.journals import Store, open_journal

FOREIGN = {
    "_label_cost": -1.0,
    "_label_probability": 0.75,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2026-01-01T10:00:00.1234567Z",
    "Version": "1",
    "EventId": "e1",
    "a": [2, 1],
    "c": {
        "GUser": {"id": "anna", "age": 31, "tags": ["new", "mobile"]},
        "_multi": [{"TAction": {"topic": "sport"}}, {"TAction": {"topic": "music"}}],
    },
    "p": [0.75, 0.25],
    "pdrop": 0.5,
}


def test_dsjson_goes_out_and_comes_in_unchanged(
    store: Store, address: str, bandit: str, tmp_path: Path
) -> None:
    """Actions, probabilities, rows, times and outcomes are unchanged, and so is an evaluation."""
    journal = store.journal(bandit)
    policy = DelayedThompson(2, Bernoulli(), floor=0.2)
    rng = np.random.default_rng(1)
    with Bandit(policy=policy, rewards=DefaultAfter("1h"), journal=journal, seed=1) as instance:
        for n in range(200):
            rows = rng.random((3, 2))
            decision = instance.decide(rows=rows, actions=["red", "green", "blue"], id=f"d{n}")
            instance.observe(decision.id, float(rng.random() < rows[decision.index, 0]))
        bandit_address = f"{address}?bandit={quote(bandit)}"
        file = str(tmp_path / "log.dsjson")
        assert main(["journal", "export", bandit_address, "--format", "dsjson", "-o", file]) == 0
        evaluation = instance.evaluate("uniform")
        before = read_journal(instance.journal)
        requests = instance.journal.requests(0, before.position.tolist())
    file_address = f"sqlite:///{tmp_path / 'again.db'}"
    target = file_address if store.name == "sqlite" else f"{address}?bandit={quote(bandit)}-again"
    assert main(["journal", "import", file, target, "--format", "dsjson"]) == 0
    with open_journal(target) as copy:
        after = read_journal(copy)
        assert [*after.ids] == [*before.ids]
        for name in ("recorded", "propensity", "value", "index"):
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
        blobs = copy.requests(0, after.position.tolist())
        for n in range(len(before)):
            request = KeptRequest.read(requests[int(before.position[n])])
            assert KeptRequest.read(blobs[int(after.position[n])]) == request
        result = JournalLog.of_journal(copy).evaluate("uniform")
    # The log does not say when rewards came, so what is weighted by delay is near, not the same.
    assert result.ips == pytest.approx(evaluation.ips, abs=0.01)
    assert result.decisions == evaluation.decisions


def test_lines_of_others_are_read(tmp_path: Path) -> None:
    """Namespaces, lists and dropped lines; lines that are not decisions are skipped."""
    file = tmp_path / "log.dsjson"
    lines = [{"EventId": "e0", "RewardValue": 1.0}, FOREIGN, {**FOREIGN, "EventId": "e2"}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    with file.open("rb") as source:
        first, _ = read_dsjson(source)
    assert first.id == "e1"
    assert first.reward == 1.0
    assert first.index == 1
    assert [*first.propensities] == [0.25, 0.75]
    assert first.share == 0.5
    assert first.context == {
        "GUser.id": "anna",
        "GUser.age": 31,
        "GUser.tags.0": "new",
        "GUser.tags.1": "mobile",
    }
    assert first.records is not None
    assert first.records[1] == {"TAction.topic": "music"}
    address = f"sqlite:///{tmp_path / 'log.db'}"
    assert main(["journal", "import", str(file), address, "--format", "dsjson"]) == 0
    with open_journal(address) as journal:
        table = read_journal(journal)
        blobs = journal.requests(0, table.position.tolist())
        assert {KeptRequest.read(blob).share for blob in blobs.values()} == {0.5}
        assert table.value.tolist() == [1.0, 1.0]


def test_a_damaged_line_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its number; nothing is left behind."""
    file = tmp_path / "log.dsjson"
    file.write_text(json.dumps(FOREIGN) + "\n" + json.dumps({**FOREIGN, "p": [1.0]}) + "\n")
    target = tmp_path / "log.db"
    assert main(["journal", "import", str(file), f"sqlite:///{target}", "--format", "dsjson"]) == 2
    assert "line 2" in capsys.readouterr().err
    assert not target.exists()


def test_obp_logs_are_evaluated(tmp_path: Path) -> None:
    """With the probabilities of all actions or uniform ones; the value equals that by hand."""
    rng = np.random.default_rng(2)
    n, count = 400, 3
    shares = rng.dirichlet(np.ones(count), n) * 0.7 + 0.1
    action = np.array([rng.choice(count, p=row) for row in shares])
    reward = (rng.random(n) < 0.2 + 0.2 * action).astype(float)
    feedback = {
        "n_rounds": n,
        "n_actions": count,
        "context": rng.normal(size=(n, 2)),
        "action": action,
        "reward": reward,
        "pscore": shares[np.arange(n), action],
        "pi_b": shares[:, :, None],
    }
    file = tmp_path / "log.npz"
    np.savez(file, **feedback)
    address = f"sqlite:///{tmp_path / 'log.db'}"
    assert main(["journal", "import", str(file), address, "--format", "obp"]) == 0
    with open_journal(address) as journal:
        result = JournalLog.of_journal(journal).evaluate("2")
    expected = ((action == 2) * reward / shares[:, 2]).mean()
    assert result.ips == pytest.approx(expected, abs=1e-12)
    assert result.low < 0.6 < result.high
    np.savez(file, **{key: feedback[key] for key in feedback if key != "pi_b"})
    address = f"sqlite:///{tmp_path / 'chosen.db'}"
    assert main(["journal", "import", str(file), address, "--format", "obp"]) == 0
    with open_journal(address) as journal:
        chosen_result = JournalLog.of_journal(journal).evaluate("2")
        export = tmp_path / "chosen.dsjson"
        command = ["journal", "export", address, "--format", "dsjson", "-o", str(export)]
        assert main(command) == 0
    assert (chosen_result.ips, chosen_result.value) == (result.ips, result.value)
    assert export.read_bytes() == b""  # which needs the probabilities of all actions
