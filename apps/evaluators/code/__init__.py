"""Evaluators that are a user's Python function, run in a sandbox without a network."""
