"""Delivery of webhooks to addresses that tenants choose: address policy, signatures, retries.

It has no tables: an app keeps its deliveries as rows and passes their `DeliveryQueue`.
"""
