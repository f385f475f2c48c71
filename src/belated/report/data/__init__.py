"""From a journal to the data of a report: the first of three rooms."""

from belated.report.data.build import SCHEMA, report_data
from belated.report.data.gauges import Gauges

__all__ = ["SCHEMA", "Gauges", "report_data"]
