"""What may hurt users though nothing is refused: one list of checks.

* ``evidence`` is what they look at: a sample of the decisions with their rows and rewards, some
  counts, and what only a report knows. A fold, a simulation, a report or a test makes it.
* ``checks`` are the conditions, each with its words.
* ``adviser`` runs them, and gives each warning once.
* ``issues`` counts what was wrong with single events, and has the words for it.

Nothing here does I/O, and nothing is stored per event: a check reads the state at rare moments.
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

#: Names of the checks of a running bandit; the others need what only a report knows.
WARNINGS = tuple(name for name, check in CHECKS.items() if check.category is not None)
