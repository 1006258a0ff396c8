"""The way out of a sandbox with a network namespace of its own: `docs/adr/0026-agent-network.md`.

`process` starts one proxy process per platform process and gives it the listening sockets of each
sandbox; `server` is its program, `connections` serves connections, `rules` decides on addresses.
"""
