"""`POST .../commands`: one command on a thread, and its answer."""

from __future__ import annotations

import asyncio
import contextlib

from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.consumers.thread_stream import protocol_events
from apps.agent_server.protocol.command_handler import BadCommand, CommandHandler
from apps.agent_server.schemas.base import read_json
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import hub
from apps.agent_server.streaming.streams import BEGINNING
from apps.agent_server.streaming.thread_reader import CaughtUp, ThreadClosed, ThreadReader
from apps.core.errors import Invalid, NotFound
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

TREE_TIMEOUT_SECONDS = 5.0


class InvalidCommand(Invalid):
    status = 400


class Command(Consumer):
    """Answers 200 to whatever can be read as a command; an error is in the envelope."""

    methods = ("POST",)

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        thread_id = context.path_uuid("thread_id")
        scope = await in_thread(self._scope, context)
        try:
            command = read_json(raw)
        except Invalid as error:
            raise InvalidCommand(error.detail) from None
        handler = CommandHandler(context, thread_id)
        if isinstance(command, dict) and command.get("method") == "agent.getTree":
            await _load_tree(context, scope, handler)
        try:
            answer = await handler.answer(command)
        except BadCommand as error:
            await context.respond(dumps(bad_command_envelope(error)), status=400)
            return
        await context.respond(dumps(answer))

    def _scope(self, context: HttpRequestContext) -> Scope:
        """Let the caller in, whatever the thread is; for a thread of the pool."""
        admission = context.admit(Permission.AGENTS_READ)
        return admission.resolve_scope("threads", "read", **context.kwargs)


def bad_command_envelope(error: BadCommand) -> dict[str, object]:
    """The envelope for what was no command."""
    given = error.command_id
    return {
        "type": "error",
        "id": given if isinstance(given, int | str | float) else None,
        "error": "invalid_argument",
        "message": str(error),
    }


async def _load_tree(context: HttpRequestContext, scope: Scope, handler: CommandHandler) -> None:
    """Read what is kept of the thread's runs into the handler's tree."""
    try:
        pk = await in_thread(stream_history.thread_pk, scope, context.path_uuid("thread_id"))
    except NotFound:
        return
    with contextlib.suppress(TimeoutError, ThreadClosed):
        async with ThreadReader(hub(), scope, pk, BEGINNING) as reader:
            async with asyncio.timeout(TREE_TIMEOUT_SECONDS):
                while not isinstance(heard := await reader.next(), CaughtUp):
                    for event in protocol_events(heard) if heard is not None else ():
                        handler.tree.take(event)
