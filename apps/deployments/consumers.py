"""A revision's log as it is written, to the page that shows it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

from channels.generic.websocket import AsyncWebsocketConsumer

from apps.api_keys import live_reauth
from apps.core.asgi import session_key_of
from apps.core.errors import AppError
from apps.core.json import dumps_text
from apps.core.sync_bridge import in_thread
from apps.deployments import pages
from apps.deployments.models import LogKind, Revision
from apps.deployments.services import notifications
from apps.deployments.statuses import FINAL
from apps.organizations.models import User
from apps.organizations.permissions import Permission
from apps.organizations.services import caller_for

LINES_A_MESSAGE = 500
LOOKS_AGAIN = 5.0
"""Seconds after which rows are read without being told: a message can be lost, a row cannot."""
NOT_SIGNED_IN, NOT_HERE, OVER = 4401, 4404, 1000
REFUSED = 4000
"""What is added to the status that a request would have."""


@dataclass(frozen=True)
class News:
    """What a reader does not know yet."""

    lines: list[tuple[int, str, str, str]]
    status: str


class RevisionLogConsumer(AsyncWebsocketConsumer):  # type: ignore[misc]  # untyped
    """Sends `{"type": "lines"}` and `{"type": "status"}`; begins after the line id `after`.

    Rows are the record and the group's messages only say when to look, so a reader that comes back
    with its last id misses nothing. Closes with 1000 when a build is over and told.
    """

    async def connect(self) -> None:
        where = self.scope["url_route"]["kwargs"]
        query = parse_qs(self.scope["query_string"].decode("latin-1"))
        after = query.get("after", ["0"])[0]
        self.after = int(after) if after.isdecimal() and len(after) < 19 else 0
        self.kind = LogKind.SERVER if query.get("log") == ["server"] else LogKind.BUILD
        self.status = ""
        self.told = asyncio.Event()
        self.refusal: AppError | None = None
        self.teller: asyncio.Task[None] | None = None

        if not same_origin(self.scope):
            await self.close()
            return
        await self.accept()
        refusal = await in_thread(_refusal, self.scope["user"], **where)
        if refusal is not None:
            await self.close(refusal)
            return
        self.proof = live_reauth.proof_of_session(
            session_key_of(self.scope) or "",
            self.scope["user"],
            where["workspace_id"],
            Permission.DEPLOYMENTS_READ,
        )
        self.workspace_id: UUID = where["workspace_id"]
        self.revision_id: UUID = where["revision_id"]
        await self.channel_layer.group_add(notifications.group(self.revision_id), self.channel_name)
        self.teller = asyncio.create_task(self._tell())

    async def disconnect(self, code: int) -> None:
        if self.teller is not None:
            self.teller.cancel()
            group = notifications.group(self.revision_id)
            await self.channel_layer.group_discard(group, self.channel_name)

    async def revision_changed(self, message: dict[str, Any]) -> None:
        """The group's word; many in a row become one look."""
        self.told.set()

    async def _tell(self) -> None:
        """Send what is new, wait for word of more, until the build is over."""
        with live_reauth.watched(self.proof, self._refuse):
            await self._tell_all()

    def _refuse(self, error: AppError) -> None:
        """Who reads may do so no longer."""
        self.refusal = error
        self.told.set()

    async def _tell_all(self) -> None:
        while True:
            if self.refusal is not None:
                await self.close(REFUSED + self.refusal.status)
                return
            self.told.clear()
            news = await in_thread(
                _news, self.workspace_id, self.revision_id, self.kind, self.after
            )
            if news is None:
                await self.close(NOT_HERE)
                return
            if news.lines:
                self.after = news.lines[-1][0]
                await self._send({"type": "lines", "lines": news.lines})
            if news.status != self.status:
                self.status = news.status
                await self._send({"type": "status", "status": news.status})
            if len(news.lines) == LINES_A_MESSAGE:
                continue
            if self.kind == LogKind.BUILD and news.status in FINAL:
                await self.close(OVER)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.told.wait(), LOOKS_AGAIN)

    async def _send(self, message: dict[str, Any]) -> None:
        await self.send(text_data=dumps_text(message))


def same_origin(scope: Mapping[str, Any]) -> bool:
    """Whether the page that connects came from here.

    Agents may live on sibling domains, whose pages would bring this site's cookies along.
    """
    headers: dict[bytes, bytes] = dict(scope["headers"])
    origin = urlsplit(headers.get(b"origin", b"").decode("latin-1")).netloc
    return origin == headers.get(b"host", b"").decode("latin-1")


def _refusal(
    user: object, *, workspace_id: UUID, deployment_id: UUID, revision_id: UUID
) -> int | None:
    """The close code for who may not read this; None for who may."""
    # Channels hands the user over behind a proxy object, which isinstance sees through.
    if not isinstance(user, User):
        return NOT_SIGNED_IN
    caller = caller_for(user=user, workspace_id=workspace_id)
    if caller is None or not caller.may(Permission.DEPLOYMENTS_READ):
        return NOT_HERE
    rows = Revision.objects.for_workspace(workspace_id).filter(deployment__deleted_at=None)
    here = rows.filter(pk=revision_id, deployment_id=deployment_id).exists()
    return None if here else NOT_HERE


def _news(workspace_id: UUID, revision_id: UUID, kind: LogKind, after: int) -> News | None:
    # The status first: what it says was written before, so no line of a finished build is missed.
    revisions = Revision.objects.for_workspace(workspace_id).filter(pk=revision_id)
    status = revisions.values_list("status", flat=True).first()
    if status is None:
        return None
    rows = pages.lines_after(workspace_id, revision_id, kind, after, LINES_A_MESSAGE)
    lines = [
        (pk, at.isoformat(timespec="milliseconds").replace("+00:00", "Z"), level, text)
        for pk, at, level, text in rows
    ]
    return News(lines, status)
