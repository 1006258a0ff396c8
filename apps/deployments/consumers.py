"""WebSocket that streams a revision's log and status to the open page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer
from django.urls import path

from apps.api_keys import live_reauth
from apps.core.errors import AppError
from apps.core.http.asgi import get_session_key
from apps.core.json import dumps_text
from apps.core.sync_bridge import in_thread
from apps.deployments import dispatch, queries
from apps.deployments.models import LogKind, Revision
from apps.deployments.statuses import FINAL
from apps.organizations.models import User
from apps.organizations.permissions import Permission
from apps.organizations.services import caller_for

MAX_LINES_PER_MESSAGE = 500
POLL_SECONDS = 5.0
"""Rows are read at least this often, because a Channels message can be lost."""
NOT_SIGNED_IN, NOT_FOUND, FINISHED = 4401, 4404, 1000
STATUS_OFFSET = 4000
"""Added to the HTTP status of a refusal to form the close code."""


@dataclass(frozen=True)
class LogUpdate:
    """Log lines and status that the client does not have yet."""

    lines: list[tuple[int, str, str, str]]
    status: str


class RevisionLogConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # untyped
    """Send `{"type": "lines"}` and `{"type": "status"}`, starting after the line id `after`.

    Lines are read from the database; group messages only trigger a read. A client that reconnects
    with its last line id therefore misses nothing. Closes with 1000 after the last line of a
    finished build.
    """

    async def connect(self) -> None:
        ids = self.scope["url_route"]["kwargs"]
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        after = query.get("after", ["0"])[0]
        self.after = int(after) if after.isdecimal() and len(after) < 19 else 0
        self.kind = LogKind.SERVER if query.get("log") == ["server"] else LogKind.BUILD
        self.status = ""
        self.changed = asyncio.Event()
        self.refusal: AppError | None = None
        self.stream_task: asyncio.Task[None] | None = None

        if not is_same_origin(self.scope):
            await self.close()
            return
        await self.accept()
        refusal = await in_thread(_close_code, self.scope["user"], **ids)
        if refusal is not None:
            await self.close(refusal)
            return
        self.credential = live_reauth.session_credential(
            get_session_key(self.scope) or "",
            self.scope["user"],
            ids["workspace_id"],
            Permission.DEPLOYMENTS_READ,
        )
        self.workspace_id: UUID = ids["workspace_id"]
        self.revision_id: UUID = ids["revision_id"]
        await self.channel_layer.group_add(dispatch.group_name(self.revision_id), self.channel_name)
        self.stream_task = asyncio.create_task(self._stream())

    async def disconnect(self, code: int) -> None:
        if self.stream_task is not None:
            self.stream_task.cancel()
            group = dispatch.group_name(self.revision_id)
            await self.channel_layer.group_discard(group, self.channel_name)

    async def revision_changed(self, message: dict[str, Any]) -> None:
        """Handle the group message. Several messages cause one read."""
        self.changed.set()

    async def _stream(self) -> None:
        """Stream updates until the build finishes or the session loses its permission."""
        with live_reauth.revalidating(self.credential, self._revoke):
            await self._stream_until_finished()

    def _revoke(self, error: AppError) -> None:
        """Close the socket: the session or its permission was revoked."""
        self.refusal = error
        self.changed.set()

    async def _stream_until_finished(self) -> None:
        while True:
            if self.refusal is not None:
                await self.close(STATUS_OFFSET + self.refusal.status)
                return
            self.changed.clear()
            update = await in_thread(
                _read_update, self.workspace_id, self.revision_id, self.kind, self.after
            )
            if update is None:
                await self.close(NOT_FOUND)
                return
            if update.lines:
                self.after = update.lines[-1][0]
                await self._send({"type": "lines", "lines": update.lines})
            if update.status != self.status:
                self.status = update.status
                await self._send({"type": "status", "status": update.status})
            if len(update.lines) == MAX_LINES_PER_MESSAGE:
                continue
            if self.kind == LogKind.BUILD and update.status in FINAL:
                await self.close(FINISHED)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), POLL_SECONDS)

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send(text_data=dumps_text(message))


def is_same_origin(scope: Mapping[str, Any]) -> bool:
    """Return whether the connecting page has this site's origin.

    Agents may be served from sibling domains, whose pages send this site's cookies.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    origin = urlsplit(headers.get(b"origin", b"").decode("latin-1")).netloc
    return origin == headers.get(b"host", b"").decode("latin-1")


def _close_code(
    user: object, *, workspace_id: UUID, deployment_id: UUID, revision_id: UUID
) -> int | None:
    """Return the close code of a user who may not read the log, or None."""
    # Channels passes a lazy proxy of the user; isinstance sees through it.
    if not isinstance(user, User):
        return NOT_SIGNED_IN
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None or not caller.may(Permission.DEPLOYMENTS_READ):
        return NOT_FOUND
    rows = Revision.objects.for_workspace(workspace_id).filter(deployment__deleted_at=None)
    exists = rows.filter(pk=revision_id, deployment_id=deployment_id).exists()
    return None if exists else NOT_FOUND


def _read_update(
    workspace_id: UUID, revision_id: UUID, kind: LogKind, after: int
) -> LogUpdate | None:
    # Read the status before the lines: all lines of a finished build are then already written.
    revisions = Revision.objects.for_workspace(workspace_id).filter(pk=revision_id)
    status = revisions.values_list("status", flat=True).first()
    if status is None:
        return None
    rows = queries.list_lines_after(workspace_id, revision_id, kind, after, MAX_LINES_PER_MESSAGE)
    lines = [
        (pk, at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), level, text)
        for pk, at, level, text in rows
    ]
    return LogUpdate(lines, status)


websocket_routes = [
    path(
        "o/<uuid:workspace_id>/deployments/<uuid:deployment_id>/revisions/<uuid:revision_id>/live",
        RevisionLogConsumer.as_asgi(),
        name="revision-live",
    ),
]
