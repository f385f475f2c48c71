"""Logs of other systems, read line by line: optional parts, and errors."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest

from belated import MemoryJournal
from belated.evaluation.logs import import_log, read_dsjson, read_obp
from belated.exceptions import InvalidInput

LINE: dict[str, Any] = {
    "_label_cost": -1.0,
    "_label_probability": 0.75,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2026-01-01T10:00:00Z",
    "EventId": "e1",
    "a": [2, 1],
    "c": {
        "GUser": {"member": True, "age": None, "_note": "left out"},
        "_multi": [{"topic": "sport"}, {"topic": "music"}],
    },
    "p": [0.75, 0.25],
}
FEEDBACK: dict[str, Any] = {
    "context": np.ones((3, 2)),
    "action": np.array([0, 1, 1]),
    "reward": np.array([1.0, 0.0, 1.0]),
    "pscore": np.array([0.5, 0.5, 0.5]),
}


def test_blank_lines_are_passed_over() -> None:
    """Other tools write blank lines between lines and at the end."""
    text = json.dumps(LINE).encode()
    decisions = list(read_dsjson(io.BytesIO(b"\n" + text + b"\n\n" + text + b"\n\n")))
    assert [decision.index for decision in decisions] == [1, 1]


def test_what_a_context_may_hold() -> None:
    """Booleans become numbers; None and names with underscores are left out."""
    [decision] = read_dsjson(io.BytesIO(json.dumps(LINE).encode()))
    assert decision.context == {"GUser.member": 1.0}


def test_a_log_without_outcomes_is_refused() -> None:
    """It probably has another format."""
    with pytest.raises(InvalidInput, match="no decision with a known outcome"):
        import_log(MemoryJournal(), [], None)


@pytest.mark.parametrize("missing", ["context", "action", "reward", "pscore"])
def test_what_is_no_feedback_is_refused(missing: str) -> None:
    """The error names the missing part."""
    feedback = {key: value for key, value in FEEDBACK.items() if key != missing}
    with pytest.raises(
        InvalidInput, match=f"bandit_feedback file of Open Bandit Pipeline .*{missing}"
    ):
        list(read_obp(feedback))


def test_a_file_that_is_none_is_refused() -> None:
    """The error names the file, and how to write one."""
    with pytest.raises(InvalidInput, match=r"log.npz is not .*: save it with numpy\.savez"):
        list(read_obp(io.BytesIO(b"no archive"), "log.npz"))


def test_probabilities_of_each_position() -> None:
    """Those of the shown position count, or of the first."""
    shares = np.zeros((3, 2, 2))
    shares[:, :, 0], shares[:, :, 1] = [0.5, 0.5], [0.9, 0.1]
    feedback = FEEDBACK | {"pi_b": shares, "position": np.array([0, 1, 1]), "n_actions": 2}
    assert [decision.propensities for decision in read_obp(feedback)] == [
        [0.5, 0.5],
        [0.9, 0.1],
        [0.9, 0.1],
    ]
    first = [decision.propensities for decision in read_obp(feedback | {"position": None})]
    assert first == [[0.5, 0.5]] * 3


def test_uniform_choices_need_no_table() -> None:
    """Otherwise, propensities of other actions are unknown."""
    assert [decision.propensities for decision in read_obp(FEEDBACK)] == [[0.5, 0.5]] * 3
    decisions = read_obp(FEEDBACK | {"pscore": np.array([0.5, 0.9, 0.5])})
    expected = [[0.5, np.nan], [np.nan, 0.9], [np.nan, 0.5]]
    np.testing.assert_array_equal([decision.propensities for decision in decisions], expected)
