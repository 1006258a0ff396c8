"""What web processes and engines tell each other through Redis."""
