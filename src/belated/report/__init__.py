"""The report: what a bandit earns, as an HTML file, in a notebook or in a terminal.

``facts`` reads the journal once. Each module in ``panels`` computes one panel's data and renders
its Vega-Lite chart and text; ``page`` assembles the panels. Only definitions are fixed text.
"""

from belated.report.report import Report

__all__ = ["Report"]
