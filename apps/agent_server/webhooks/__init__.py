"""Webhooks that report the end of agent runs: rules, signatures, sending, retries."""
