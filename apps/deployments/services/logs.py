"""The log of a revision: lines kept in batches, each batch announced to who watches."""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from django.utils import timezone

from apps.deployments.models import LogKind, LogLine
from apps.deployments.services import notifications

FLUSH_SECONDS = 0.2
LONGEST_LINE = 4000
MOST_LINES = 20_000
_BATCH = 1000
# Colours and titles of terminals, and the control characters that PostgreSQL or a page refuses.
_UNSEEN = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]"
)


class RevisionLog:
    """Takes lines from any thread and keeps them about every 200 ms.

    Who writes calls `flush_if_due` while waiting; leaving the block keeps the rest. After
    `MOST_LINES` lines it says so once and keeps only what is worse than information.
    """

    def __init__(
        self,
        *,
        workspace_id: UUID,
        deployment_id: UUID,
        revision_id: UUID,
        kind: LogKind = LogKind.BUILD,
    ) -> None:
        self.workspace_id = workspace_id
        self.deployment_id = deployment_id
        self.revision_id = revision_id
        self.kind = kind
        self._lock = threading.Lock()
        self._lines: list[tuple[datetime, str, str]] = []
        self._count = 0
        self._flushed_at = time.monotonic()

    def write(self, text: str, level: str = "INFO") -> None:
        """Add one line, or several when the text has line breaks."""
        now = timezone.now()
        for line in text.splitlines() or [""]:
            self._add(now, level, line)

    def _add(self, now: datetime, level: str, line: str) -> None:
        with self._lock:
            self._count += 1
            if self._count > MOST_LINES and level in ("DEBUG", "INFO"):
                if self._count > MOST_LINES + 1:
                    return
                level, line = "WARNING", f"The log is cut here: it has {MOST_LINES} lines."
            self._lines.append((now, level, clean(line)))

    @property
    def is_due(self) -> bool:
        return bool(self._lines) and time.monotonic() - self._flushed_at >= FLUSH_SECONDS

    def flush_if_due(self) -> None:
        if self.is_due:
            self.flush()

    def flush(self) -> None:
        """Keep what was written so far and announce it."""
        with self._lock:
            lines, self._lines = self._lines, []
        self._flushed_at = time.monotonic()
        if not lines:
            return
        LogLine.unscoped.bulk_create(
            [
                LogLine(
                    workspace_id=self.workspace_id,
                    deployment_id=self.deployment_id,
                    revision_id=self.revision_id,
                    kind=self.kind,
                    created_at=written_at,
                    level=level,
                    message=message,
                )
                for written_at, level, message in lines
            ],
            batch_size=_BATCH,
        )
        notifications.revision_changed(self.revision_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.flush()


def clean(line: str) -> str:
    """A line of a terminal without colours and control characters, and not longer than is kept."""
    line = _UNSEEN.sub("", line)
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…"
