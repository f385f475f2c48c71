"""From a journal to the data of a report: the first of three rooms."""

from belated.report.data.attention import KINDS
from belated.report.data.build import SCHEMA, report_data
from belated.report.data.gauges import Gauges

__all__ = ["KINDS", "SCHEMA", "Gauges", "report_data"]
