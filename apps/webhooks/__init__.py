"""Delivery of webhooks to addresses that tenants choose: address policy, signatures, retries, log.

An app that notifies an address inserts a `Delivery` in the transaction of its event and registers a
builder of its requests. Webhooks of agent runs have their own rows, which their engine inserts.
"""
