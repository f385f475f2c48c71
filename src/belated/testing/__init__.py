"""Contract tests for custom implementations of the library's protocols.

Subclass a contract in a test file, define the methods it requires, and run pytest:

* :class:`JournalContract`: for journals, which look up records by id.
* :class:`LogContract`: for logs without lookups.
* :class:`CellsContract`: for cells.
* :class:`StoreContract`: for stores, which open journals and cells.
* :class:`ManualClock`: a clock that the test controls.

Requires the ``testing`` extra.
"""

from belated.exceptions import extra

with extra("belated.testing", "testing"):
    import hypothesis  # noqa: F401 - checks that it is installed
    import pytest

# Show compared values in assertion failures, as pytest does for test files.
for _name in ("cells", "journal", "store"):
    pytest.register_assert_rewrite(f"belated.testing.{_name}_contract")

from belated.testing.cells_contract import CellsContract  # noqa: E402 - after the check above
from belated.testing.clocks import ManualClock  # noqa: E402
from belated.testing.journal_contract import JournalContract, LogContract  # noqa: E402
from belated.testing.store_contract import StoreContract  # noqa: E402

__all__ = ["CellsContract", "JournalContract", "LogContract", "ManualClock", "StoreContract"]
