"""Page-shaped reads: what the tracing pages show."""
