"""The part of a worker that executes agent runs.

One asyncio loop in a dedicated thread claims runs, keeps graph hosts, and writes what they save.
Celery tasks only wake it. `docs/adr/0004-graph-host-protocol.md` has the reasons.
"""
