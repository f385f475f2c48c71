"""What a bandit earns, on one page: a file, a notebook, a console.

Three rooms: ``data`` reads a journal and makes plain numbers, ``charts`` makes specifications of
Vega-Lite from these, ``page`` shows both. Nothing in a page is written by hand but definitions.
"""

from belated.report.report import Report, learned

__all__ = ["Report", "learned"]
