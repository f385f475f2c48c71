"""Test the search of the built documentation with users' questions: a script, not a test file.

``python -m tests.docs_search FOLDER`` opens the search page in a real browser (see .ci/run). The
first result for each question must be a page that answers it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from tests.integration.chromium import Chromium
from tests.waiting import eventually

#: Each question, with the pages that answer it.
QUESTIONS = {
    "rewards that come weeks later": ("questions", "howto/late-rewards"),
    "propensity": ("questions", "howto/evaluate"),
    "add an arm": ("questions", "howto/features"),
    "why did it choose this action": ("questions", "howto/requests"),
    "undo a bad feed": ("questions", "howto/undo"),
    "how many decisions until I know": ("questions", "howto/compare"),
    "JavaScript": ("questions", "howto/browser"),
    "database down": ("questions", "howto/outages"),
    "how much memory": ("questions", "howto/sizing"),
    "know that it works": ("questions", "howto/evaluate"),
    "compare with my own rule": ("questions", "howto/evaluate"),
    "stored about a person": ("questions", "howto/privacy"),
    "quickstart": ("index",),
    "gdpr": ("questions", "howto/privacy"),
    "hour of day": ("questions", "howto/features"),
    "embedding": ("questions", "howto/features"),
    "pause": ("questions", "howto/pause"),
    "rollback": ("questions", "howto/upgrade", "howto/control"),
    "A/B test": ("questions", "howto/evaluate"),
    "docker": ("howto/containers",),
    "kafka": ("howto/kafka",),
    "postgresql": ("howto/postgres",),
    "metrics alerts": ("howto/metrics",),
    "belated.toml settings": ("reference/configuration", "howto/service"),
}
_LINKS = "[...document.querySelectorAll('ul.search li a')].map(a => a.getAttribute('href'))"
_DONE = f"document.querySelector('p.search-summary, #search-results > p') && {_LINKS}.length > 0"


def main() -> int:
    """Print the first result of each question; return 1 if one is wrong."""
    folder, failures = Path(sys.argv[1]).resolve(), 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        Chromium(Path(profile)) as browser,
    ):
        for question, pages in QUESTIONS.items():
            browser.open(f"{(folder / 'search.html').as_uri()}?q={quote(question)}")
            eventually(lambda: bool(browser.run(_DONE)))
            first = str(browser.run(f"{_LINKS}[0]")).partition(".html")[0]
            is_listed = first in pages
            failures += not is_listed
            print(f"{'ok' if is_listed else 'WRONG':5} {question}: {first}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
