"""The thread-centric protocol: events by channel and namespace, and commands on a thread."""
