"""Journals store events, and return them by position.

* :class:`MemoryJournal`: in memory, for the lifetime of the process.
* :class:`SQLiteJournal`: durable, in a file, for any number of processes on one machine.
* :class:`PostgresJournal`: durable, in a database, for any number of machines.
* :class:`KafkaJournal`: in Kafka and a database, for higher rates than one database can ingest.
* :class:`SpoolJournal`: wraps another journal and accepts events while it is unavailable.

:func:`open_journal` opens all of these except the last by address. :func:`open_store` opens a
store, which holds many journals and, for a service, their leases, published models and API keys. A
:class:`StoreSession` is one connection shared by any number of journals.

A store consists of event logs (:class:`UniqueLog`) and :class:`Cells`, small named values with
versions. Everything else is implemented once, using logs and cells: identities, owners, snapshots,
leases, models and keys. The how-to "Write a store" shows how to implement a custom store, and
:mod:`belated.testing` how to test it.
"""

from typing import TYPE_CHECKING

from belated.journals.addresses import open_journal, open_store
from belated.journals.cells import Cells
from belated.journals.journal import Journal
from belated.journals.log import Log, UniqueLog
from belated.journals.memory import MemoryJournal, MemoryStore
from belated.journals.sqlite.log import SQLiteJournal
from belated.journals.sqlite.store import SQLiteStore
from belated.journals.store import Store

if TYPE_CHECKING:
    from belated.journals.kafka.log import KafkaJournal
    from belated.journals.kafka.store import KafkaStore
    from belated.journals.postgres.log import PostgresJournal
    from belated.journals.postgres.store import PostgresStore
    from belated.journals.spool.journal import SpoolJournal
else:
    #: Modules of rarely used names, which are imported on first access.
    _LAZY = {
        "KafkaJournal": "kafka.log",
        "KafkaStore": "kafka.store",
        "PostgresJournal": "postgres.log",
        "PostgresStore": "postgres.store",
        "SpoolJournal": "spool.journal",
    }

    def __getattr__(name):
        from importlib import import_module

        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value


__all__ = [
    "Cells",
    "Journal",
    "KafkaJournal",
    "KafkaStore",
    "Log",
    "MemoryJournal",
    "MemoryStore",
    "PostgresJournal",
    "PostgresStore",
    "SQLiteJournal",
    "SQLiteStore",
    "SpoolJournal",
    "Store",
    "UniqueLog",
    "open_journal",
    "open_store",
]
