"""Metrics: what is counted is told, in base units, with labels from short lists."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, strategies as st
from prometheus_client.parser import text_string_to_metric_families

from belated import Bernoulli, Category, DelayedUCB, Explicit, PerArm
from belated.advice import Adviser
from belated.advice.issues import KINDS, Noticed, of_fields
from belated.core.events import ActionChanged, Decision, Record, Reward
from belated.decider.actions import states_at
from belated.fold.fold import Fold
from belated.journals import MemoryJournal, open_store
from belated.journals.spool.journal import SpoolStatus
from belated.report.gauges import Gauges
from belated.service.console.reports import Reports
from belated.service.histogram import DELAYS, SECONDS, SIZES, Histogram
from belated.service.learning.leader import HistoryChanges, JournalClock
from belated.service.learning.learners import Learners
from belated.service.learning.learning_service import SAMPLED, LearningService
from belated.service.learning.refold import Refold
from belated.service.operating.metrics import FAMILIES, Metrics
from belated.service.runtime import ThreadRuntime
from belated.service.serving.served_bandits import RequestStats
from belated.service.serving.spools import LeftSpools
from tests.ports import free_port

ROW = np.array([1.0, 0.5], dtype=np.float32)


def decision(id: str, at: int) -> Decision:
    """One."""
    return Decision(id, at, 0, 0, ROW, 0.5, 1.0, 0)


@pytest.fixture
def served() -> Any:
    """What metrics ask of a served bandit."""
    stats = RequestStats(decisions=3, rewards=2, activations_voids=1, models=4, entropy=1.5)
    stats.seconds.add(0.003)
    stats.failures["board"] += 2
    commits = SimpleNamespace(
        seconds=Histogram(SECONDS), sizes=Histogram(SIZES), failures=Counter()
    )
    commits.sizes.add(5)
    features = PerArm(["mail"], context={"country": Category(["AT"])})
    features.rows({"country": "FR"}, ["mail"])
    spool = SpoolStatus(
        journal_down=True, queued=7, size=640, oldest=2_000_000, error="x", forwarded=0
    )
    return SimpleNamespace(
        stats=stats,
        commits=commits,
        failed_commits=1,
        age=0.25,
        version=9,
        has_other_features=False,
        chosen=None,
        definition=SimpleNamespace(actions={"gift", "mail"}, features=features),
        noticed=of_fields(features) | {"invalid": Noticed(2)},
        duplicates=6,
        decider=SimpleNamespace(unapplied=range(2), mode="freeze", fallbacks=Counter(error=3)),
        spool=spool,
        left_spools=LeftSpools(2, 9, {"damaged": 1}),
        now=lambda: 5_500_000,
        actions=states_at(
            {name: ActionChanged(5, name, "pause") for name in ("gift", "a", "b")}, 9, ["mail"]
        ),
    )


@pytest.fixture
def learner() -> LearningService:
    """One that leads, and has folded a decision with its reward, and one without."""
    service = object.__new__(LearningService)
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit())
    page = [
        Record(0, 1, 1_000_000, decision("a", 1)),
        Record(0, 2, 2_000_000, decision("b", 2)),
        Record(0, 3, 5_000_000, Reward("a", 3, 1.0)),
        Record(0, 4, 6_000_000, Reward("early", 4, 1.0)),
    ]
    fold.take_all(0, page)
    service.fold, service.epoch, service.lag, service.delays = fold, 1, 0.01, Histogram(DELAYS)
    service.history_changes, service.head, service.adviser = HistoryChanges(), "4:abc", Adviser()
    service.adviser.current = frozenset({"alike"})
    service.refold = Refold(MemoryJournal(), lambda: 0.0)
    service.lags, service.fits = Histogram(SECONDS), Histogram(SECONDS)
    service.lags.add(0.03)
    service.fits.add(1.5)
    service._note_delays(fold.ledgers[0], page)
    service.oldest = fold.ledgers[0].oldest
    service.clock = JournalClock(MemoryJournal(), ThreadRuntime())
    service.clock.last_stamp, service.clock.offset = 15_000_000, -2.5
    service.clock.now = lambda: 12_000_000  # type: ignore[method-assign]
    return service


@pytest.fixture
def samples(served: Any, learner: LearningService) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels."""
    learners = Learners({"offers": lambda: learner})
    learners.running["offers"] = learner
    requests = Counter({("PUT", "/v1/{bandit}/decisions/{id}/reward", 202): 7})
    reports = Reports(open_store("memory:"), {"offers": {"blue"}})
    reports["offers"].gauges = Gauges(
        reward={"bandit": 0.3, "holdout": 0.2},
        lift={"estimate": 0.5, "low": 0.1, "high": 0.9},
        share={"blue": 0.75, "red": 0.25},
        predicted=1.1,
        attention=["slowed"],
    )
    metrics = Metrics(
        {"offers": served}, learners, requests, commits=served.commits, reports=reports
    )
    text = metrics.text().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_a_served_bandit_has_seen(samples: dict[tuple[str, tuple[str, ...]], float]) -> None:
    """Counters, ages, histograms and failures."""
    bandit_labels = ("offers",)
    assert samples["belated_decisions_total", bandit_labels] == 3
    assert samples["belated_rewards_total", bandit_labels] == 2
    assert samples["belated_activations_voids_total", bandit_labels] == 1
    assert samples["belated_store_duplicates_total", bandit_labels] == 6
    assert samples["belated_field_values_total", ("offers", "country", "unknown")] == 1
    assert samples["belated_field_values_total", ("offers", "country", "ok")] == 0
    counted = {kind: samples["belated_issues", ("offers", kind)] for kind in KINDS}
    # The unmatched reward is the learner's, which runs in this process, too.
    expected = {"unknown": 1, "invalid": 2, "unmatched": 1}
    assert counted == dict.fromkeys(KINDS, 0) | expected
    assert samples["belated_choice_entropy_nats_total", bandit_labels] == 1.5
    assert samples["belated_models_loaded_total", bandit_labels] == 4
    assert samples["belated_model_age_seconds", bandit_labels] == 0.25
    assert samples["belated_model_version", bandit_labels] == 9
    assert samples["belated_unapplied_decisions", bandit_labels] == 2
    paused = {
        labels: value
        for (name, labels), value in samples.items()
        if name == "belated_action_paused"
    }
    assert paused == {("gift", "offers"): 1, ("mail", "offers"): 0, ("others", "offers"): 2}
    assert samples["belated_decide_seconds_count", bandit_labels] == 1
    assert samples["belated_decide_seconds_bucket", ("offers", "0.002")] == 0
    assert samples["belated_decide_seconds_bucket", ("offers", "0.005")] == 1
    assert samples["belated_decide_seconds_bucket", ("offers", "+Inf")] == 1
    assert samples["belated_commit_events_sum", ()] == 5
    assert samples["belated_spool_left_files", bandit_labels] == 2
    assert samples["belated_spool_left_events", bandit_labels] == 9
    assert samples["belated_spool_unreadable_files", ("offers", "damaged")] == 1
    assert samples["belated_spool_unreadable_files", ("offers", "folder")] == 0
    assert samples["belated_internal_errors_total", ("offers", "board")] == 2
    assert samples["belated_internal_errors_total", ("offers", "commit")] == 1
    assert samples["belated_internal_errors_total", ("offers", "model")] == 0
    requests = "PUT", "/v1/{bandit}/decisions/{id}/reward", "202"
    assert samples["belated_http_requests_total", requests] == 7


def test_what_a_learner_knows(samples: dict[tuple[str, tuple[str, ...]], float]) -> None:
    """Events by status, decisions by state, the oldest, and how long rewards took."""
    labels = ("offers",)
    assert samples["belated_learner_is_leader", labels] == 1
    assert samples["belated_learner_lag_seconds", labels] == 0.01
    assert samples["belated_fold_lag_seconds_sum", labels] == 0.03
    assert samples["belated_fit_seconds_sum", labels] == 1.5
    assert samples["belated_journal_clock_ahead_seconds", labels] == 3
    assert samples["belated_journal_clock_offset_seconds", labels] == -2.5
    assert samples["belated_learner_events_total", ("offers", "rewarded")] == 1
    assert samples["belated_learner_events_total", ("offers", "decided")] == 2
    assert ("belated_learner_events_total", ("offers", "unmatched")) not in samples  # it can fall
    assert samples["belated_unmatched_events", labels] == 1
    assert samples["belated_learner_decisions", ("offers", "pending")] == 1
    assert samples["belated_pending_decisions", labels] == 1
    assert samples["belated_pending_oldest_seconds", labels] == 10
    assert samples["belated_reward_delay_seconds_sum", labels] == 4
    assert samples["belated_learner_restarts_total", labels] == 0


def test_standby_reports_itself(served: Any, learner: LearningService) -> None:
    """And nothing of what it does not know."""
    learner.fold, learner.epoch = None, 0
    learners = Learners({})
    learners.running["offers"] = learner
    text = Metrics({"offers": served}, learners, {}).text().decode()
    assert 'belated_learner_is_leader{bandit="offers"} 0.0' in text
    for name in ("lag_seconds", "events_total", "decisions"):
        assert f"belated_learner_{name}{{" not in text
    for name in ("pending_decisions", "pending_oldest_seconds", "parked_events"):
        assert f"belated_{name}{{" not in text


def test_a_decider_without_a_model_has_no_age(served: Any) -> None:
    """0 would look like a new one."""
    served.age = None
    text = Metrics({"b": served}, Learners({}), {}).text().decode()
    assert "belated_model_age_seconds{" not in text


def test_a_learner_alone_can_be_asked_too(learner: LearningService) -> None:
    """On a port of its own, which is free again afterwards."""
    learners = Learners({})
    learners.running["offers"] = learner
    port = free_port()
    for _ in range(2):
        stop = Metrics({}, learners, {}).listen(port)
        try:
            text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        finally:
            stop()
        assert 'belated_learner_is_leader{bandit="offers"} 1.0' in text


def test_names_are_in_base_units() -> None:
    """Seconds and nats; no milli-anything, and no name twice."""
    names = list(FAMILIES)
    assert all(name.startswith("belated_") and not name.endswith("_total") for name in names)
    assert not any("milli" in name or "_ms" in name or "micro" in name for name in names)


@given(st.lists(st.floats(0, 20), max_size=50))
def test_a_tally_counts_as_prometheus_does(values: list[float]) -> None:
    """A bucket holds all that are at most its bound."""
    tally = Histogram(SECONDS)
    for value in values:
        tally.add(value)
    expected = [sum(value <= bound for value in values) for bound in SECONDS]
    assert tally.cumulative == [*expected, len(values)]
    assert tally.total == pytest.approx(sum(values))


def test_of_a_crowd_only_some_delays_are_noted() -> None:
    """A page of rewards costs no more than a few look-ups."""
    service = object.__new__(LearningService)
    service.delays = Histogram(DELAYS)
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit())
    ids = [f"i{n}" for n in range(3 * SAMPLED)]
    page = [Record(0, 1 + n, 10, decision(id, 1)) for n, id in enumerate(ids)]
    page += [Record(0, 500 + n, 20, Reward(id, 1, 1.0)) for n, id in enumerate(ids)]
    fold.take_all(0, page)
    service._note_delays(fold.ledgers[0], page)
    assert service.delays.cumulative[-1] == SAMPLED


def test_what_it_earns(samples: dict[tuple[str, tuple[str, ...]], float]) -> None:
    """As the last report says it."""
    assert samples["belated_reward_per_decision", ("offers", "holdout")] == 0.2
    assert samples["belated_lift_ratio", ("offers", "low")] == 0.1
    assert samples["belated_action_share", ("blue", "offers")] == 0.75
    assert samples["belated_action_share", ("others", "offers")] == 0.25  # a stranger's word
    assert samples["belated_predicted_ratio", ("offers",)] == 1.1
    assert samples["belated_advice", ("offers", "slowed")] == 1  # by the report
    assert samples["belated_advice", ("offers", "alike")] == 1  # by the learner
    assert samples["belated_advice", ("offers", "silence")] == 0
    assert samples["belated_report_age_seconds", ("offers",)] > 0


def test_the_oldest_pending_is_that_of_the_ledger() -> None:
    """Also while it is fresh, and when it has left."""
    fold = Fold(DelayedUCB(2, Bernoulli()), Explicit())

    def oldest() -> tuple[int | None, int | None]:
        ledger = fold.ledgers[0]
        return ledger.oldest, next((recorded for _, recorded in ledger.pending()), None)

    assert oldest() == (None, None)
    for n in range(3):
        fold.take(Record(0, 1 + n, 10 + n, decision(f"i{n}", 1)))
    assert oldest() == (10, 10)
    fold.take(Record(0, 4, 20, Reward("i0", 1, 1.0)))
    assert oldest() == (11, 11)
