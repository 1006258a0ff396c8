"""Serving of HTTP and WebSockets: ASGI entry, bridge to Django, middleware, paths."""
