"""The Model Context Protocol of an agent: its tools, resources and sessions (docs/adr/0036)."""
