"""A child process that creates one report, so that decisions are not delayed.

The process reads the address of a journal from standard input, because an address may contain a
password and other users can see command lines. It writes the report to standard output, as JSON for
the console.
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

#: Niceness of the process, so that other work on the machine has priority.
NICE = 15


def main() -> int:
    """Create one report. An error is printed to standard error as one line."""
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
    output = {"gauges": Gauges.of(data), "page": page}
    sys.stdout.buffer.write(msgspec.json.encode(output))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
