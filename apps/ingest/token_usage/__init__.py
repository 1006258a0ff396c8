"""Token counts and costs that runs report: vocabularies, normal form and columns."""

from apps.ingest.token_usage.columns import ReportedUsage, read_usage, usage_columns

__all__ = ["ReportedUsage", "read_usage", "usage_columns"]
