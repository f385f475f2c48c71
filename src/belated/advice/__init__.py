"""Advice: checks for problems that do not raise errors, but harm results.

* ``evidence`` is the input of the checks: a sample of decisions with rows and rewards, counts, and
  facts that only a report has. A fold, a simulation, a report or a test creates it.
* ``checks`` are the conditions, each with its message.
* ``adviser`` runs the checks, and issues each warning once.
* ``issues`` counts problems with single events, and describes them.

This package does no I/O and stores nothing per event: checks read the state occasionally.
"""

from belated.advice.adviser import (
    Advice as Advice,
    Adviser as Adviser,
    advise as advise,
    warn as warn,
)
from belated.advice.checks import CHECKS as CHECKS
from belated.advice.evidence import (
    NUMBERS as NUMBERS,
    ROWS as ROWS,
    SAMPLE as SAMPLE,
    Evidence as Evidence,
    Overview as Overview,
)

#: Names of the checks of a running bandit; the others need facts that only a report has.
WARNINGS = tuple(name for name, check in CHECKS.items() if check.category is not None)
