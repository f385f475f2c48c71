"""The dashboard and the alerts name metrics that exist, and the documentation knows them all."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from belated.decider import MODES
from belated.service.learning.learners import Learners
from belated.service.operating.metrics import FAMILIES, Metrics
from belated.service.serving.spools import LIMIT

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboard.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
HOWTO = ROOT / "docs" / "howto" / "metrics.md"

#: The labels of each metric, by the name that stands in a query.
LABELS = {
    f"{family.name}{suffix}": family._labelnames  # type: ignore[attr-defined]
    for family in Metrics({}, Learners({}), {}).collect()
    for suffix in {
        "counter": ["_total"],
        "gauge": [""],
        "histogram": ["_bucket", "_sum", "_count"],
    }[family.type]
}


def queries() -> list[str]:
    """All that are asked."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return expressions + [rule["expr"] for rule in alerts()]


def alerts() -> list[dict[str, Any]]:
    """The rules of the alerts."""
    document = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def test_every_metric_that_is_asked_for_exists() -> None:
    """And has the labels that are asked for."""
    for query in queries():
        metrics = re.findall(r"(belated_\w+)(?:{([^}]*)})?", query)
        assert metrics, query
        for name, selectors in metrics:
            assert name in LABELS, query
            for label in re.findall(r"(\w+)\s*(?:=|!)", selectors):
                assert label in LABELS[name], query
        for labels in re.findall(r"by \(([^)]*)\)", query):
            allowed = {"le", "instance"}.union(*(LABELS[name] for name, _ in metrics))
            assert set(re.findall(r"\w+", labels)) <= allowed, query


def test_brackets_are_closed() -> None:
    """Nobody here can ask Prometheus whether it understands them."""
    for query in queries():
        for opening, closing in ("()", "[]", "{}"):
            assert query.count(opening) == query.count(closing), query


def test_every_metric_is_on_the_dashboard() -> None:
    """What is not looked at need not be counted."""
    text = DASHBOARD.read_text(encoding="utf-8")
    for name, family in FAMILIES.items():
        assert name in text or "bandit" not in family.labels, name


def test_every_metric_is_documented_and_no_other() -> None:
    """With its name as Prometheus has it."""
    text = HOWTO.read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(belated_\w+)`", text, re.MULTILINE))
    assert documented == {re.sub(r"_(bucket|sum|count)$", "", name) for name in LABELS}
    mentioned = {re.sub(r"{.*", "", metric) for metric in re.findall(r"`(belated_[^`]+)`", text)}
    assert mentioned == documented


def test_every_alert_says_what_to_do() -> None:
    """Here and in the documentation, and there are no others there."""
    text = HOWTO.read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(Belated\w+)`", text, re.MULTILINE)
    assert sorted(documented) == sorted(rule["alert"] for rule in alerts())
    for rule in alerts():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert {"summary", "description"} <= rule["annotations"].keys()


def test_a_full_spool_is_told_of_before_the_usual_limit() -> None:
    """The alert has numbers of its own: three quarters of the limit, and all of it."""
    (rule,) = [alert for alert in alerts() if alert["alert"] == "BelatedSpoolFull"]
    assert [int(limit) for limit in re.findall(r"> (\d+)", rule["expr"])] == [LIMIT * 3 // 4, LIMIT]


def test_every_mode_but_the_usual_is_told_of() -> None:
    """One label for all of them, so that a new mode is among them."""
    (rule,) = [alert for alert in alerts() if alert["alert"] == "BelatedSwitched"]
    assert re.findall(r"{(.*?)}", rule["expr"]) == [f'mode!="{MODES[0]}"']


def test_panels_do_not_lie_on_each_other() -> None:
    """And each has a name, a description and a unit."""
    occupied: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        position = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not occupied & cells, panel["title"]
        occupied |= cells
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
