"""Data of the tracing pages."""
