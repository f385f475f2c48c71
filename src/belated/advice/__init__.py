"""Advice: checks for problems that raise no errors but harm results.

* ``evidence``: the input of the checks, which is a sample of decisions with rows and rewards,
  counts, and facts available only in a report. A fold, a simulation, a report or a test creates it.
* ``checks``: the conditions, each with its message.
* ``adviser``: runs the checks, and issues each warning once.
* ``issues``: counts and describes problems with individual events.

This package does no I/O and stores nothing per event; checks read the state occasionally.
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

#: Names of the checks that a running bandit uses; the remaining checks run only in a report.
WARNINGS = tuple(name for name, check in CHECKS.items() if check.category is not None)
