"""The suites that use the public clients, run with several versions of the clients."""
