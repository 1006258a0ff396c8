"""What became of an edit, as an error for who asked."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from uuid import UUID

from apps.agent_server import errors
from apps.agent_server.messaging.calls import CallFailed
from apps.agent_server.messaging.messages import EDIT_REFUSED, THREAD_BUSY, THREAD_GONE


@contextlib.asynccontextmanager
async def edit_errors(thread_id: UUID) -> AsyncIterator[None]:
    """Asking for an edit: what is permanent is a refusal, for a 5xx would be repeated."""
    try:
        yield
    except CallFailed as failure:
        if failure.name == EDIT_REFUSED:
            raise errors.EditRefused(failure.detail) from failure
        if failure.name == THREAD_BUSY:
            raise errors.ThreadBusy from failure
        if failure.name == THREAD_GONE:
            raise errors.ThreadNotFound(thread_id) from failure
        raise
