"""What a bandit earns, on one page: a file, a notebook, a console.

``facts`` reads a journal once. Each file of ``panels`` makes the numbers of a panel from it, its
chart as a specification of Vega-Lite, and its words. ``page`` shows all of them. Nothing in a page
is written by hand but definitions.
"""

from belated.report.report import Report

__all__ = ["Report"]
