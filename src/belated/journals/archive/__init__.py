"""Old days of a journal as Parquet, in a folder or an object store.

``days`` is what a day holds, ``archive`` writes and reads days, and
``whole`` is a journal together with its archive, as if nothing had ever been trimmed.
"""

from belated.journals.archive.archive import Archive
from belated.journals.archive.days import ArchivedDay, ArchivedDecision, Manifest, StoredRecord
from belated.journals.archive.whole import WholeJournal

__all__ = [
    "Archive",
    "ArchivedDay",
    "ArchivedDecision",
    "Manifest",
    "StoredRecord",
    "WholeJournal",
]
