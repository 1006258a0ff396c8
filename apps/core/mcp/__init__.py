"""The Model Context Protocol of all servers of the platform (docs/adr/0036)."""
