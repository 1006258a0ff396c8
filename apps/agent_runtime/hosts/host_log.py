"""Writes the output of graph hosts to their deployment's log."""

from __future__ import annotations

import asyncio
import logging

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.connection_pool import ConnectionPool
from apps.agent_runtime.hosts.launch import RevisionRef

logger = logging.getLogger(__name__)

BATCH_SECONDS = 0.5
MAX_QUEUED_LINES = 5_000
"""Further lines are dropped and counted, so that one agent cannot slow the others down."""


class HostLogWriter:
    """Writes lines in batches."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._lines: dict[RevisionRef, list[tuple[str, str]]] = {}
        self._queued_count = 0
        self._dropped_count = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, revision: RevisionRef, lines: list[tuple[str, str]]) -> None:
        """Queue lines, each with its level."""
        if self._queued_count > MAX_QUEUED_LINES:
            self._dropped_count += len(lines)
            return
        self._queued_count += len(lines)
        self._lines.setdefault(revision, []).extend(lines)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_later())

    async def close(self) -> None:
        """Write the queued lines."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_later(self) -> None:
        while self._lines:
            await asyncio.sleep(BATCH_SECONDS)
            lines, self._lines, self._queued_count = self._lines, {}, 0
            for revision, entries in lines.items():
                await self._write(revision, entries)

    async def _write(self, revision: RevisionRef, entries: list[tuple[str, str]]) -> None:
        if self._dropped_count:
            text = f"... {self._dropped_count} lines dropped: the output is too fast"
            entries.append(("INFO", text))
            self._dropped_count = 0
        levels = [level for level, _ in entries]
        texts = [text for _, text in entries]
        ids = [revision.workspace_id, revision.deployment_id, revision.revision_id]
        try:
            await self._pool.fetch_rows(statements.ADD_LOG_LINES, [*ids, levels, texts])
        except Exception:
            logger.exception("Writing log lines of revision %s failed.", revision.revision_id)
