"""A process that makes a report and exits, so that deciding does not wait for it.

It reads the address of a journal from its standard input, so that no list of processes shows it,
and writes the content of the console to its standard output, as JSON.
"""

from __future__ import annotations

import os
import sys

import msgspec

from belated.evaluation.journal import JournalLog
from belated.exceptions import BelatedError
from belated.journals import open_journal
from belated.report.gauges import Gauges
from belated.report.page import body
from belated.report.panels import specifications
from belated.report.report import Report, learned

#: Niceness: all else on the machine has priority.
NICE = 15


def main() -> int:
    """Make one report; an error is one line on standard error."""
    if hasattr(os, "nice"):
        os.nice(NICE)
    try:
        with open_journal(sys.stdin.readline().strip()) as journal:
            log = JournalLog.of_journal(journal)
            data = Report.of(log, *learned(log)).data
    except BelatedError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    page = {"html": body(data), "specs": specifications(data), "as_of": data["as_of"]}
    made = {"gauges": Gauges.of(data), "page": page}
    sys.stdout.buffer.write(msgspec.json.encode(made))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
