"""Authentication of an agent's callers, and authorization of their actions."""
