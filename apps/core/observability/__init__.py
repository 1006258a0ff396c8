"""Logs, metrics, error reports and health checks."""
