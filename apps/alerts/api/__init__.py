"""API of alerts."""
