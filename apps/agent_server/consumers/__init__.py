"""What streams or waits: one consumer for each such route."""
