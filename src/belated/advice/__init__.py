"""What may hurt users though nothing is refused, said from what a bandit has seen.

* ``evidence`` is what is looked at: a sample of the decisions with their rows and rewards, and some
  counts. A fold, a simulation or a test makes it.
* ``outcomes``, ``delays`` and ``rows`` are the checks: each takes the evidence and returns a
  message, or nothing.
* ``adviser`` is the table of all checks, and gives each warning once.

Nothing here does I/O, and nothing is kept per event: a check reads the state at rare moments.
"""

from belated.advice.adviser import CHECKS, Advice, Adviser, advise, warn
from belated.advice.evidence import NUMBERS, ROWS, SAMPLE, Evidence

__all__ = [
    "CHECKS",
    "NUMBERS",
    "ROWS",
    "SAMPLE",
    "Advice",
    "Adviser",
    "Evidence",
    "advise",
    "warn",
]
