"""`POST .../commands`: one command on a thread, and its answer."""

from __future__ import annotations

import asyncio
import contextlib

from apps.agent_server.consumers.http_request import Consumer, Exchange
from apps.agent_server.consumers.thread_stream import events_in
from apps.agent_server.protocol.command_handler import BadCommand, Desk
from apps.agent_server.schemas.base import read_json
from apps.agent_server.scope import Scope
from apps.agent_server.services import thread_streams
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING
from apps.agent_server.streaming.thread_reader import CaughtUp, ThreadGone, ThreadReader
from apps.core.errors import Invalid, NotFound
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

TREE_SECONDS = 5.0


class NotACommand(Invalid):
    status = 400


class Command(Consumer):
    """Answers 200 to whatever can be read as a command; an error is in the envelope."""

    methods = ("POST",)

    async def handle(self, exchange: Exchange) -> None:
        raw = await exchange.body()
        thread_id = exchange.uuid("thread_id")
        scope = await in_thread(self._scope, exchange)
        try:
            command = read_json(raw)
        except Invalid as error:
            raise NotACommand(error.detail) from None
        desk = Desk(exchange, thread_id)
        if isinstance(command, dict) and command.get("method") == "agent.getTree":
            await _fold(exchange, scope, desk)
        try:
            answer = await desk.answer(command)
        except BadCommand as error:
            await exchange.respond(dumps(bad_command(error)), status=400)
            return
        await exchange.respond(dumps(answer))

    def _scope(self, exchange: Exchange) -> Scope:
        """Let the caller in, whatever the thread is; for a thread of the pool."""
        admission = exchange.admit(Permission.AGENTS_READ)
        return admission.scope("threads", "read", **exchange.kwargs)


def bad_command(error: BadCommand) -> dict[str, object]:
    """The envelope for what was no command."""
    given = error.given_id
    return {
        "type": "error",
        "id": given if isinstance(given, int | str | float) else None,
        "error": "invalid_argument",
        "message": str(error),
    }


async def _fold(exchange: Exchange, scope: Scope, desk: Desk) -> None:
    """Read what is kept of the thread's runs into the desk's tree."""
    try:
        pk = await in_thread(thread_streams.thread_pk, scope, exchange.uuid("thread_id"))
    except NotFound:
        return
    with contextlib.suppress(TimeoutError, ThreadGone):
        async with ThreadReader(hub(), scope, pk, BEGINNING) as reader:
            async with asyncio.timeout(TREE_SECONDS):
                while not isinstance(heard := await reader.next(), CaughtUp):
                    for event in events_in(heard) if heard is not None else ():
                        desk.tree.take(event)
