"""Whatever is sent: no 5xx, answers as documented, a finite estimate, and the journal's own ledger.

schemathesis makes requests from the OpenAPI document, such as conform to it and such as do not, one
by one and in chains: the id in an answer goes to whatever can be asked of a decision.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from belated import Bernoulli, DelayedThompson, DelayedUCB, Explicit, Gaussian, Shared
from belated.fold import Fold
from belated.journals import PostgresJournal
from belated.service import Definition, create_app
from belated.service.app import AROUND, Service
from belated.service.routes import BANDIT_ROUTES
from tests.fuzz.documents import for_features, for_rows
from tests.integration.postgres_server import PostgresServer, require_programs
from tests.integration.serving import Serving

# The learner warns of what it is given here, and goes on.
pytestmark = pytest.mark.filterwarnings("ignore::belated.exceptions.BelatedWarning")

DIM = 4
SHARED = Shared(context=["age"], action=["price"])
#: Short spans, so that all that can become of a decision does.
DEFINITIONS = [
    Definition(
        "rows",
        DelayedThompson(DIM, Bernoulli()),
        Explicit(timedelta(seconds=2)),
        retention=10_000_000,
        partitions=2,
    ),
    Definition("shared", DelayedUCB(SHARED.dim, Gaussian()), Explicit(), features=SHARED),
]
DOCUMENTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "rows": lambda document: for_rows(document, "rows", DIM),
    "shared": lambda document: for_features(document, "shared"),
}
#: What does not hold here, and need not.
EXCLUDED = [
    "allow_header_conformance",  # a decision may be called batch: then that path takes DELETE too
    "ignored_auth",  # nobody has a key here
    "object_level_authorization",
    "positive_data_acceptance",  # our own check is for that
    "use_after_free",  # a decision that is void is still told of
]
#: All that may be logged meanwhile: none of it has anything of a request.
SAID = {"this learner leads", "Invalid HTTP request received."}


class Fuzzed(logging.Handler):
    """A service, and all that it logs."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn
        self.app: Service = create_app(DEFINITIONS, dsn, learn=True)
        self.serving = Serving()
        self.said: set[str] = set()
        self.folds: dict[str, Fold] = {}

    def stop(self) -> None:
        """Stop it, and keep what its learners had made of the journal."""
        for name, learner in list(self.app._learners.running.items()):
            assert learner.fold is not None
            self.folds[name] = learner.fold
        self.serving.stop()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what was said."""
        self.said.add(record.getMessage())

    @property
    def failed(self) -> int:
        """How many requests were answered with a 5xx."""
        counts = self.app.requests.items()
        return sum(count for (_, _, status), count in counts if status >= 500)


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Fuzzed]:
    """A service that learns, on a PostgreSQL of its own."""
    require_programs()
    postgres = PostgresServer()
    try:
        PostgresJournal.create_tables(postgres.dsn)
        found = Fuzzed(postgres.dsn)
        found.serving.start(found.app)
        loggers = [logging.getLogger(name) for name in ("belated", "uvicorn")]
        for logger in loggers:
            logger.setLevel(logging.INFO)
            logger.addHandler(found)
        yield found
        for logger in loggers:
            logger.setLevel(logging.NOTSET)
            logger.removeHandler(found)
        found.stop()
    finally:
        postgres.stop()


def fuzz(url: str, document: dict[str, Any], folder: Path, seed: int, full: bool) -> dict[str, Any]:
    """Send requests made from a document; returns the report of schemathesis."""
    folder.mkdir()
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    # What does not depend on the seed is sent once.
    phases = "coverage,fuzzing,stateful" if seed == 0 else "fuzzing,stateful"
    done = subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", url,
            "--seed", str(seed), "--phases", phases, "--max-examples", "420" if full else "30",
            "--exclude-checks", ",".join(EXCLUDED), "--continue-on-failure", "--no-color",
            "--report", "json", "--report-json-path", "report.json",
        ],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("checks.py"))},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    report: dict[str, Any] = json.loads((folder / "report.json").read_bytes() or b"{}")
    return report | {"code": done.returncode, "told": done.stdout + done.stderr}


@pytest.mark.skipif(
    find_spec("schemathesis") is None and not os.environ.get("CI"),
    reason="schemathesis is not installed",
)
def test_every_answer_is_as_documented(
    fuzzed: Fuzzed, full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of them is a 5xx; what the document forbids is refused, what it allows is taken."""
    url, start = fuzzed.serving.url, time.monotonic()
    document = httpx.get(f"{url}/openapi.json").content
    runs = [(bandit, seed) for bandit in DOCUMENTS for seed in range(4 if full else 1)]

    def run(bandit: str, seed: int) -> dict[str, Any]:
        made = DOCUMENTS[bandit](json.loads(document))
        return fuzz(url, made, tmp_path / f"{bandit}-{seed}", seed, full)

    with ThreadPoolExecutor(len(runs)) as pool:  # all at once, as clients come
        reports = list(pool.map(run, *zip(*runs, strict=True)))
    cases = sum(one["test_cases"]["generated"] for one in reports if "test_cases" in one)
    found = sum(one["test_cases"]["unique_failures"] for one in reports if "test_cases" in one)
    with capsys.disabled():
        print(
            f"\n{cases:,} cases, {fuzzed.failed} answers of 5xx, {found} violations, "
            f"{time.monotonic() - start:.0f} s"
        )
    for report in reports:
        assert report["code"] == 0, report["told"]
        assert report["stop_reason"] == "completed"
        assert report["test_cases"]["errored"] == 0
    assert found == fuzzed.failed == 0
    assert cases >= (20_000 if full else 1_000)


def test_labels_of_metrics_are_bounded(fuzzed: Fuzzed) -> None:
    """Names of bandits and routes, and words from short lists: nothing that was sent."""
    routes = [*BANDIT_ROUTES, *AROUND]
    known = {
        "bandit": {one.name for one in DEFINITIONS},
        "method": {route.method for route in routes} | {"other"},
        "route": {route.path for route in routes} | {"other"},
    }
    values: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(httpx.get(f"{fuzzed.serving.url}/metrics").text):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    assert all(values[label] <= known[label] for label in known)
    # Numbers of bounds and statuses, and words of the ledger.
    others = set().union(*(values[label] for label in values.keys() - known))
    assert [one for one in others if not re.fullmatch(r"[a-z0-9.+ -]+|\+Inf", one)] == []
    assert max(len(found) for found in values.values()) < 50


def test_the_log_has_nothing_of_what_was_sent(fuzzed: Fuzzed) -> None:
    """Only what is known to be said; and the service itself never failed."""
    assert fuzzed.said <= SAID


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda one: one.name)
def test_the_ledger_is_that_of_the_journal(fuzzed: Fuzzed, definition: Definition) -> None:
    """The learner's own equals a fold of the journal from its start; its estimate is finite."""
    fuzzed.stop()
    live = fuzzed.folds[definition.name]
    with PostgresJournal(fuzzed.dsn, bandit=definition.name) as journal:
        assert live.catch_up(journal) < 100  # what was told or settled at the very end
        fresh = Fold(
            definition.policy,
            definition.rewards,
            partitions=journal.partitions,
            retention=definition.retention,
        )
        fresh.catch_up(journal)
    assert live.digest == fresh.digest
    assert live.counters == fresh.counters
    for fold in (live, fresh):
        for numbers in (fold.model.theta, fold.model.observed, fold.model.decided):
            assert np.isfinite(numbers).all()
