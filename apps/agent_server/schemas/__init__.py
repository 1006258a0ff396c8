"""What clients may ask for, checked once for views and consumers alike, by resource.

Unknown fields are ignored and null means absent, because clients of every age send both. A field
that is understood but cannot be honoured is refused by name.
"""
