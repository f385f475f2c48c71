"""What a bandit holds: a log, and a shelf beside it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from belated.journals.log import UniqueLog
from belated.journals.shelf import Shelf


@runtime_checkable
class Journal(UniqueLog, Shelf, Protocol):
    """The events of one bandit, and what is stored beside them.

    :class:`belated.testing.JournalContract` has the tests of both.
    """
