"""Build a revision: clone, install, import in the sandbox, health check, activation."""
