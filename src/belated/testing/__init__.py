"""Contracts as tests, for your own implementations of the library's protocols.

Subclass a contract in a test file, give it what it asks for, and pytest runs it:

* :class:`JournalContract`: a journal, whose log finds events by id. :class:`LogContract`: one that
  does not.
* :class:`CellsContract`: the cells, on which all else is built.
* :class:`StoreContract`: the store that opens both.
* :class:`ManualClock`: a clock that a test moves.

Needs the extra ``testing``.
"""

from belated.exceptions import extra

with extra("belated.testing", "testing"):
    import hypothesis  # noqa: F401 - only to see whether it is there
    import pytest

# Failures then show the values that were compared, as in any test file.
for _name in ("cells", "journal", "store"):
    pytest.register_assert_rewrite(f"belated.testing.{_name}_contract")

from belated.testing.cells_contract import CellsContract  # noqa: E402 - after the check above
from belated.testing.clocks import ManualClock  # noqa: E402
from belated.testing.journal_contract import JournalContract, LogContract  # noqa: E402
from belated.testing.store_contract import StoreContract  # noqa: E402

__all__ = ["CellsContract", "JournalContract", "LogContract", "ManualClock", "StoreContract"]
