"""Each alert fires for its cause and only then, by Prometheus' own unit tests of rules."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.prometheus_server import ALERTS, alert_names, require_prometheus

#: A sample a minute, as promtool writes series: a+bxn is a, a + b, …, n times.
_STEADY, _GROWS = "{}+0x{}", "0+{}x{}"


def _of(name: str, labels: str = "") -> str:
    return f'belated_{name}{{bandit="offers"{"," if labels else ""}{labels}}}'


def _requests(status: int) -> str:
    return f'belated_http_requests_total{{route="/v1/{{bandit}}/decisions",status="{status}"}}'


#: What processes tell while all is well.
HEALTHY = {
    _of("learner_is_leader"): _STEADY.format(1, "{n}"),
    _of("model_age_seconds"): _STEADY.format(4, "{n}"),
    _of("mode", 'mode="learn"'): _STEADY.format(1, "{n}"),
    _of("mode", 'mode="baseline"'): _STEADY.format(0, "{n}"),
    _requests(201): _GROWS.format(6000, "{n}"),
    _requests(422): _GROWS.format(10, "{n}"),
    _requests(503): _STEADY.format(0, "{n}"),
    'belated_dead_workers{instance="decider"}': _STEADY.format(0, "{n}"),
    _of("journal_unavailable"): _STEADY.format(0, "{n}"),
    _of("spool_oldest_seconds"): _STEADY.format(0, "{n}"),
    _of("spool_bytes"): _STEADY.format(4096, "{n}"),
    _of("spool_left_files"): _STEADY.format(0, "{n}"),
    _of("learner_events_total", 'status="decided"'): _GROWS.format(6000, "{n}"),
    _of("learner_events_total", 'status="rewarded"'): _GROWS.format(3000, "{n}"),
    _of("learner_decisions", 'state="rewarded"'): _GROWS.format(3000, "{n}"),
    _of("journal_clock_ahead_seconds"): _STEADY.format(0, "{n}"),
    _of("journal_clock_offset_seconds"): _STEADY.format(-0.1, "{n}"),
    _of("learner_lag_seconds"): _STEADY.format(0.1, "{n}"),
    _of("pending_decisions"): _STEADY.format(5000, "{n}"),
    _of("decide_seconds_bucket", 'le="0.01"'): _GROWS.format(5990, "{n}"),
    _of("decide_seconds_bucket", 'le="1.0"'): _GROWS.format(6000, "{n}"),
    _of("decide_seconds_bucket", 'le="+Inf"'): _GROWS.format(6000, "{n}"),
    "belated_keys_age_seconds": _STEADY.format(1, "{n}"),
    _of("fallback_decisions_total", 'reason="error"'): _STEADY.format(0, "{n}"),
    _of("internal_errors_total", 'kind="model"'): _STEADY.format(0, "{n}"),
    _of("history_changes_total"): _STEADY.format(0, "{n}"),
    _of("refold_disagreements_total"): _STEADY.format(0, "{n}"),
    _of("advice", 'warning="missing"'): _STEADY.format(0, "{n}"),
    _of("advice", 'warning="dependence"'): _STEADY.format(0, "{n}"),
    _of("learner_restarts_total"): _STEADY.format(0, "{n}"),
    _of("advice", 'warning="silence"'): _STEADY.format(0, "{n}"),
    _of("advice", 'warning="conflict"'): _STEADY.format(0, "{n}"),
    _of("advice", 'warning="mode"'): _STEADY.format(1, "{n}"),  # has an alert of its own
    _of("report_age_seconds"): _STEADY.format(300, "{n}"),
    _of("unmatched_refused_total"): _STEADY.format(0, "{n}"),
    'belated_process_restarts_total{instance="decider"}': _STEADY.format(0, "{n}"),
}

DAY = 24 * 60

#: Of each alert the minutes after which it fires, and the series that differ from a healthy set-up.
CAUSES: dict[str, tuple[int, dict[str, str]]] = {
    "BelatedNoLeader": (30, {_of("learner_is_leader"): "1+0x20 0+0x10"}),
    "BelatedModelOld": (30, {_of("model_age_seconds"): "4+0x20 100+60x10"}),
    "BelatedErrors": (30, {_requests(503): "0+0x15 0+600x15"}),
    "BelatedWorkerDead": (30, {'belated_dead_workers{instance="decider"}': "0+0x28 1+0x2"}),
    "BelatedJournalUnavailable": (30, {_of("journal_unavailable"): "0+0x25 1+0x5"}),
    "BelatedSpoolFull": (30, {_of("spool_bytes"): "0+0x10 0+30000000x20"}),
    "BelatedSpoolLeft": (30, {_of("spool_left_files"): "0+0x10 1+0x20"}),
    "BelatedRewardsStopped": (
        10 * 60,
        {_of("learner_events_total", 'status="rewarded"'): "0+3000x60 180000+0x540"},
    ),
    "BelatedUnmatchedFull": (30, {_of("unmatched_refused_total"): "0+0x20 100+100x10"}),
    "BelatedRewardsMissing": (30, {_of("advice", 'warning="silence"'): "0+0x20 1+0x10"}),
    "BelatedAttention": (100, {_of("advice", 'warning="conflict"'): "0+0x20 1+0x80"}),
    "BelatedReportOld": (60, {_of("report_age_seconds"): "30000+60x60"}),
    "BelatedClockJumped": (30, {_of("journal_clock_offset_seconds"): "0+0x25 -3600+0x5"}),
    "BelatedLearnerBehind": (30, {_of("learner_lag_seconds"): "0+0x20 40+0x10"}),
    "BelatedPendingGrows": (
        DAY + 90,
        {_of("pending_decisions"): f"5000+0x{DAY} 12000+0x90"},
    ),
    "BelatedDecideSlow": (
        40,
        {_of("decide_seconds_bucket", 'le="0.01"'): "0+5990x20 119800+5000x20"},
    ),
    "BelatedRefused": (60, {_requests(422): "0+10x20 200+1000x40"}),
    "BelatedKeysOld": (30, {"belated_keys_age_seconds": "1+0x20 90+60x10"}),
    "BelatedFallback": (30, {_of("fallback_decisions_total", 'reason="error"'): "0+0x27 1+1x3"}),
    "BelatedSwitched": (
        90,
        {
            _of("mode", 'mode="learn"'): "1+0x20 0+0x70",
            _of("mode", 'mode="baseline"'): "0+0x20 1+0x70",
        },
    ),
    "BelatedOtherPolicy": (40, {_of("internal_errors_total", 'kind="model"'): "0+0x20 0+1x20"}),
    "BelatedHistoryChanged": (30, {_of("history_changes_total"): "0+0x20 1+0x10"}),
    "BelatedRefoldDisagrees": (30, {_of("refold_disagreements_total"): "0+0x20 1+0x10"}),
    "BelatedAdvice": (40, {_of("advice", 'warning="missing"'): "0+0x20 1+0x20"}),
    "BelatedDelayDependence": (40, {_of("advice", 'warning="dependence"'): "0+0x20 1+0x20"}),
    "BelatedLearnerFails": (40, {_of("learner_restarts_total"): "0+0x20 0+1x20"}),
    "BelatedProcessesFail": (
        40,
        {'belated_process_restarts_total{instance="decider"}': "0+0x20 0+1x20"},
    ),
}


def _test(minutes: int, series: dict[str, str], expected: set[str]) -> dict[str, object]:
    """Return a promtool test: which alerts fire after some minutes."""
    values = HEALTHY | series
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(expected)]
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": text.replace("{n}", str(minutes))}
            for name, text in values.items()
        ],
        "promql_expr_test": [{"expr": firing, "eval_time": f"{minutes}m", "exp_samples": samples}],
    }


def _promtool(tests: list[dict[str, object]], folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "tests.yml"
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    command = ["promtool", "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(autouse=True)
def _prometheus() -> None:
    require_prometheus()


def test_the_rules_are_well_formed() -> None:
    """Prometheus accepts the rules."""
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_each_alert_fires_by_its_cause_alone(tmp_path: Path) -> None:
    """Every alert has a cause here."""
    assert set(CAUSES) == alert_names()
    tests = [_test(minutes, series, {name}) for name, (minutes, series) in CAUSES.items()]
    result = _promtool(tests, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_what_is_found_before_the_first_scrape_is_told(tmp_path: Path) -> None:
    """A counter that is 1 when it is first scraped does not increase; after an hour it is old."""
    changes = {_of("history_changes_total"): "1+0x{n}"}
    disagreements = {_of("refold_disagreements_total"): "1+0x{n}"}
    tests = [
        _test(30, changes, {"BelatedHistoryChanged"}),
        _test(90, changes, set()),
        _test(90, disagreements, {"BelatedRefoldDisagrees"}),
    ]
    result = _promtool(tests, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_alert_fires_while_all_is_well(tmp_path: Path) -> None:
    """During a whole day; a missing metric is a cause as well."""
    result = _promtool([_test(DAY + 90, {}, set())], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    test = _test(30, {}, {"BelatedNoLeader"})
    test["input_series"] = []
    result = _promtool([test], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
