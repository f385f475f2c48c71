"""Contracts as tests, for your own implementations of the library's protocols.

Subclass a contract in a test file, give it what it asks for, and pytest runs it:

* :class:`LogContract`, :class:`UniqueLogContract`, :class:`ShelfContract`: the parts of a journal.
* :class:`JournalContract`: what every journal must do, which is all of these.
* :class:`CoordinationContract`, :class:`KeyStoreContract`, :class:`StoreContract`: what a service
  needs of a store beyond journals, and the store that opens all of it.
* :class:`ManualClock`: a clock that a test moves.

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
    *(
        f"belated.testing.{name}_contract"
        for name in (
            "cells",
            "log",
            "unique_log",
            "shelf",
            "journal",
            "coordination",
            "key",
            "store",
        )
    )
)

from belated.testing.cells_contract import CellsContract  # noqa: E402 - after the check above
from belated.testing.clocks import ManualClock  # noqa: E402
from belated.testing.coordination_contract import CoordinationContract  # noqa: E402
from belated.testing.journal_contract import JournalContract  # noqa: E402
from belated.testing.key_contract import KeyStoreContract  # noqa: E402
from belated.testing.log_contract import LogContract  # noqa: E402
from belated.testing.shelf_contract import ShelfContract  # noqa: E402
from belated.testing.store_contract import StoreContract  # noqa: E402
from belated.testing.unique_log_contract import UniqueLogContract  # noqa: E402

__all__ = [
    "CellsContract",
    "CoordinationContract",
    "JournalContract",
    "KeyStoreContract",
    "LogContract",
    "ManualClock",
    "ShelfContract",
    "StoreContract",
    "UniqueLogContract",
]
