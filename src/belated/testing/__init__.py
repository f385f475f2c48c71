"""Contracts as tests, for your own implementations of the library's protocols.

Subclass a contract in a test file, give it what it asks for, and pytest runs it:

* :class:`JournalContract`: what every journal must do.
* :class:`ManualClock`: a clock that a test moves.
* :class:`Oracle`: what the records of a partition come to, by the plain text of the rules.
* :mod:`belated.testing.simulator`: the whole library under faults, one seed a run.

Needs the extra ``testing``.
"""

from belated.exceptions import MissingExtra

try:
    import hypothesis  # noqa: F401 - only to see whether it is there
    import pytest
except ImportError:
    raise MissingExtra("belated.testing", "testing") from None

# Failures then show the values that were compared, as in any test file.
pytest.register_assert_rewrite(
    "belated.testing.journal_contract", "belated.testing.snapshot_contract"
)

from belated.testing.clocks import ManualClock  # noqa: E402 - after the check above
from belated.testing.journal_contract import JournalContract  # noqa: E402
from belated.testing.oracle import Oracle, Outcome  # noqa: E402

__all__ = ["JournalContract", "ManualClock", "Oracle", "Outcome"]
