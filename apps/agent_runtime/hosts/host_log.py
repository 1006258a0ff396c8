"""What graph hosts print, kept as lines of their deployment's log."""

from __future__ import annotations

import asyncio
import logging

from apps.agent_runtime.db import statements
from apps.agent_runtime.db.database import Database
from apps.agent_runtime.hosts.graph_host import RevisionRef

logger = logging.getLogger(__name__)

COLLECT_SECONDS = 0.5
MOST_WAITING = 5_000
"""Lines above this number are dropped and counted: a chatty agent must not slow the others down."""


class LogKeeper:
    """Writes lines in bulk, a moment after they came."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lines: dict[RevisionRef, list[str]] = {}
        self._waiting = 0
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None

    def add(self, revision: RevisionRef, lines: list[str]) -> None:
        """Keep these lines."""
        if self._waiting > MOST_WAITING:
            self._dropped += len(lines)
            return
        self._waiting += len(lines)
        self._lines.setdefault(revision, []).extend(lines)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_later())

    async def close(self) -> None:
        """Write what is left."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _write_later(self) -> None:
        while self._lines:
            await asyncio.sleep(COLLECT_SECONDS)
            lines, self._lines, self._waiting = self._lines, {}, 0
            for revision, texts in lines.items():
                await self._write(revision, texts)

    async def _write(self, revision: RevisionRef, texts: list[str]) -> None:
        if self._dropped:
            texts.append(f"... and {self._dropped} lines that came too fast to be kept")
            self._dropped = 0
        levels = ["INFO"] * len(texts)
        owner = [revision.workspace_id, revision.deployment_id, revision.revision_id]
        try:
            await self._database.rows(statements.ADD_LOG_LINES, [*owner, levels, texts])
        except Exception:
            logger.exception("Lines of revision %s were lost.", revision.revision_id)
