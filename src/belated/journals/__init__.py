"""Where the facts are kept: events are appended, and read back by position.

* :class:`MemoryJournal`: in this process, for as long as it lives.
* :class:`SQLiteJournal`: in a file, durable, for one machine and any number of its processes.
* :class:`PostgresJournal`: in a database, durable, for any number of machines.
* :class:`SpoolJournal`: in front of another one; takes events also while that is away.

:class:`Journal` says what another one would have to do, and
:class:`belated.testing.JournalContract` tests it.
"""

from belated.journals.journal import Journal
from belated.journals.memory import MemoryJournal
from belated.journals.postgres import PostgresJournal
from belated.journals.postgres_board import PostgresBoard
from belated.journals.postgres_keys import PostgresKeys
from belated.journals.snapshots import Snapshot
from belated.journals.spool import SpoolJournal, SpoolStatus
from belated.journals.sqlite import SQLiteJournal

__all__ = [
    "Journal",
    "MemoryJournal",
    "PostgresBoard",
    "PostgresJournal",
    "PostgresKeys",
    "SQLiteJournal",
    "Snapshot",
    "SpoolJournal",
    "SpoolStatus",
]
