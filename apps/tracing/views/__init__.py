"""Views of the tracing pages: they load data with `pages` and render it."""
