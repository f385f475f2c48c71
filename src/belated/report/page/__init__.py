"""A report to look at: the last of three rooms."""

from belated.report.page.document import body, document

__all__ = ["body", "document"]
