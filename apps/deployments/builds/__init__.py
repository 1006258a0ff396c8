"""Building revisions: clone, environment, import in the sandbox, health, switch."""
