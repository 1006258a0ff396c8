"""The Model Context Protocol of an agent: each assistant is a tool (docs/adr/0036)."""
