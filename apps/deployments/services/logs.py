"""The log of a revision: lines are stored in batches, and each batch notifies open pages."""

from __future__ import annotations

import re
import threading
import time
from datetime import datetime
from typing import Self
from uuid import UUID

from django.utils import timezone

from apps.deployments import dispatch
from apps.deployments.models import LogKind, LogLine

FLUSH_SECONDS = 0.2
MAX_LINE_LENGTH = 4000
MAX_LINES = 20_000
_BATCH = 1000
# Terminal escape sequences, and control characters that PostgreSQL or a browser rejects.
_CONTROL_SEQUENCES = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]"
)


class RevisionLog:
    """Buffers log lines, thread-safe, and stores them about every `FLUSH_SECONDS`.

    The writer calls `flush_if_due` while it waits; leaving the `with` block flushes the rest. After
    `MAX_LINES` lines one notice follows, and then only warnings and errors are stored.
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
            if self._count > MAX_LINES and level in ("DEBUG", "INFO"):
                if self._count > MAX_LINES + 1:
                    return
                level, line = (
                    "WARNING",
                    f"The log is truncated after {MAX_LINES} lines.",
                )
            self._lines.append((now, level, clean_line(line)))

    @property
    def is_due(self) -> bool:
        return bool(self._lines) and time.monotonic() - self._flushed_at >= FLUSH_SECONDS

    def flush_if_due(self) -> None:
        if self.is_due:
            self.flush()

    def flush(self) -> None:
        """Store the buffered lines and notify open pages."""
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
        dispatch.notify_revision_changed(self.revision_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()


def clean_line(line: str) -> str:
    """Return the line without control sequences, truncated to `MAX_LINE_LENGTH`."""
    line = _CONTROL_SEQUENCES.sub("", line)
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[:MAX_LINE_LENGTH]}…"
