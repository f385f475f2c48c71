"""From a journal to the data of a report: the first of three rooms."""

from belated.report.data.build import SCHEMA, report_data

__all__ = ["SCHEMA", "report_data"]
