"""Alerts: rules over the metrics of runs, incidents, and notices to channels (ADR 0035)."""
