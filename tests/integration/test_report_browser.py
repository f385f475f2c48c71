"""A report in a real browser: charts are drawn, nothing is loaded, no name is executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.chromium import Chromium
from tests.unit.test_report_page import hostile_report

#: Resolves once all charts are drawn.
DRAWN = """new Promise((done) => { const look = () =>
  document.body.dataset.drawn ? done(Number(document.body.dataset.drawn)) : setTimeout(look, 50);
look(); })"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a bandit with hostile names."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    hostile_report().save(file)
    return file.as_uri()


def test_a_browser_draws_it(page: str, tmp_path: Path) -> None:
    """Under its content security policy, without requests or errors."""
    with Chromium(tmp_path / "profile") as browser:
        browser.open(page)
        charts = browser.run(DRAWN)
        assert charts >= 9
        assert browser.run("document.querySelectorAll('.chart svg').length") == charts
        assert browser.run("document.body.innerText.includes('could not be drawn')") is False
        assert browser.run("performance.getEntriesByType('resource').length") == 0
        assert "offers" in browser.run("document.title")  # what a hostile name would change
        overflow = browser.run("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0
        browser.run("document.getElementById('theme').click()")
        assert browser.run("document.documentElement.dataset.theme") in ("light", "dark")
