"""Messages between web processes and engines, through Redis."""
