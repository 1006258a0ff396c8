"""Bodies and queries of requests, by resource.

Unknown fields are ignored and null means absent, because clients of all versions send both. A known
field with an unsupported value is rejected by name.
"""
