"""What a bandit earns, as Prometheus reads it from a real service."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from belated import Bernoulli, DefaultAfter, DelayedUCB, Holdout
from belated.client import Client
from belated.journals import open_store
from belated.service import Definition, Service
from belated.service.console.reports import SHARE, BanditReport, Reports
from tests.integration.serving import served
from tests.waiting import eventually

OFFERS = Definition(
    "offers",
    DelayedUCB(2, Bernoulli(), floor=0.2),
    DefaultAfter("1h"),
    holdout=Holdout(0.2, "uniform"),
)


def test_a_scrape_of_the_leader_has_the_report_made(tmp_path: Path) -> None:
    """With reward, lift, shares and findings."""
    store = open_store(f"sqlite:///{tmp_path / 'offers.db'}")

    def scraped(url: str) -> dict[str, float]:
        text = httpx.get(f"{url}/metrics").text
        return {
            ",".join((sample.name, *sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    with served(Service([OFFERS], store, learn=True)) as serving:
        with Client(serving.url, bandit="offers") as client:
            for n in range(300):
                client.decide(rows=[[1.0, 0.0], [0.0, 1.0]], actions=["a", "b"], id=f"d{n}")
                if n % 2 == 0:
                    client.observe(f"d{n}", 1.0)
        eventually(lambda: "belated_report_age_seconds,offers" in scraped(serving.url), seconds=60)
        samples = scraped(serving.url)
    assert 0.2 < samples["belated_reward_per_decision,offers,bandit"] < 0.8
    assert samples["belated_lift_ratio,offers,low"] < samples["belated_lift_ratio,offers,high"]
    # Requests name the actions here, and the configuration does not.
    assert samples["belated_action_share,others,offers"] == pytest.approx(1.0, abs=1e-3)
    assert samples["belated_advice,offers,silence"] == 0.0


class Watched(BanditReport):
    """A report that is computed at once, and counted."""

    asked = 0

    def look(self) -> bytes | None:
        """Compute the report."""
        self.asked += 1
        self.tried_at, self.took = 1e-6 + self.asked, 1.0
        return None


def test_many_bandits_share_a_fiftieth_of_a_processor() -> None:
    """One report after the other, the oldest first, with a pause after each."""
    store = open_store("memory:")
    reports = Reports(store, {"a": (), "b": ()})
    for name in reports:
        reports[name] = Watched(store, name)
    reports.watch([])
    reports.watch(["a", "b"])
    reports.watch(["a", "b"])  # a second after the system had started: long ago
    assert [report.asked for report in reports.values()] == [1, 1]  # type: ignore[attr-defined]
    report_of_b = reports["b"]
    report_of_b.tried_at, report_of_b.took = 1e12, 3.0  # far from now
    reports.watch(["a", "b"])
    assert [report.asked for report in reports.values()] == [1, 1]  # type: ignore[attr-defined]
    assert SHARE >= 50.0
