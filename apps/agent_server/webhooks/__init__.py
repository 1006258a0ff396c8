"""Telling other servers that an agent run has ended: rules, signatures, sending, retries."""
