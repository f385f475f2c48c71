"""Asks the search of the built documentation what users ask: a script, not a test file.

``python -m tests.docs_search FOLDER`` opens its search in a real browser, see .ci/run. Each of
these must find the page that answers it first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.integration.chromium import Chromium
from tests.waiting import eventually

#: What is typed, and the pages of which one must come first.
ASKED = {
    "rewards that come weeks later": ("questions", "howto/late-rewards"),
    "propensity": ("questions", "howto/evaluate"),
    "add an arm": ("questions", "howto/features"),
    "why did it choose this action": ("questions", "howto/requests"),
    "undo a bad feed": ("questions", "howto/undo"),
    "how many decisions until I know": ("questions", "howto/compare"),
    "JavaScript": ("questions", "howto/browser"),
    "database down": ("questions", "howto/outages"),
    "how much memory": ("questions", "howto/speed"),
    "know that it works": ("questions", "howto/report"),
    "compare with my own rule": ("questions", "howto/evaluate"),
    "stored about a person": ("questions", "howto/privacy"),
    "kafka": ("howto/kafka",),
    "postgresql": ("howto/postgres",),
    "metrics alerts": ("howto/metrics",),
    "belated.toml settings": ("reference/configuration", "howto/service"),
}
_LINKS = "[...document.querySelectorAll('ul.search li a')].map(a => a.getAttribute('href'))"
_DONE = f"document.querySelector('p.search-summary, #search-results > p') && {_LINKS}.length > 0"


def main() -> int:
    """Say what each question finds; 1 if one finds something else first."""
    folder, wrong = Path(sys.argv[1]).resolve(), 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Chromium(Path(profile)) as browser,
    ):
        for question, pages in ASKED.items():
            browser.open(f"{(folder / 'search.html').as_uri()}?q={quote(question)}")
            eventually(lambda: bool(browser.run(_DONE)))
            first = str(browser.run(f"{_LINKS}[0]")).partition(".html")[0]
            right = first in pages
            wrong += not right
            print(f"{'ok' if right else 'WRONG':5} {question}: {first}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
