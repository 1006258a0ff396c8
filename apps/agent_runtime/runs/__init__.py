"""Execution of one attempt of a run, from claim to committed result."""
