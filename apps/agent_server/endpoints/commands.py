"""The endpoint for one command on a thread."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any
from uuid import UUID

from apps.agent_server.endpoints.endpoint import Continuation, EndpointGroup
from apps.agent_server.endpoints.thread_stream import protocol_events
from apps.agent_server.protocol.command_handler import BadCommand, CommandHandler
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.schemas.commands import read_command
from apps.agent_server.scope import Scope
from apps.agent_server.services import stream_history
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.streaming.streams import BEGINNING
from apps.agent_server.streaming.thread_reader import CaughtUp, ThreadClosed, ThreadReader
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core.errors import Invalid, NotFound
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

TREE_TIMEOUT_SECONDS = 5.0

endpoints = EndpointGroup("threads")


class InvalidCommand(Invalid):
    status = 400


@endpoints.post(
    "/threads/{thread_id}/commands",
    permission=Permission.AGENTS_READ,
    raw_body_model=responses.CommandEnvelope,
    response=responses.CommandAnswer,
)
def run_command(context: HttpRequestContext, thread_id: UUID, raw_body: bytes) -> Continuation:
    """Execute a command on a thread; its errors are in the envelope of a 200 response.

    Each command checks the permissions for its own action.
    """
    scope = context.admission.resolve_scope("threads", "read", **context.path_params)
    try:
        command = read_command(raw_body)
    except Invalid as error:
        raise InvalidCommand(error.detail) from None
    return partial(_answer, scope, thread_id, command)


async def _answer(
    scope: Scope, thread_id: UUID, command: Any, context: HttpRequestContext
) -> Response:
    handler = CommandHandler(context, thread_id)
    if isinstance(command, dict) and command.get("method") == "agent.getTree":
        await _load_tree(scope, thread_id, handler)
    try:
        return Response(dumps(await handler.answer(command)))
    except BadCommand as error:
        return Response(dumps(bad_command_envelope(error)), status=400)


def bad_command_envelope(error: BadCommand) -> JSONObject:
    """The error envelope for a message that is not a command."""
    command_id = error.command_id
    return {
        "type": "error",
        "id": command_id if isinstance(command_id, int | str | float) else None,
        "error": "invalid_argument",
        "message": str(error),
    }


async def _load_tree(scope: Scope, thread_id: UUID, handler: CommandHandler) -> None:
    """Read the stored events of the thread's runs into the handler's tree."""
    try:
        pk = await in_thread(stream_history.find_thread_pk, scope, thread_id)
    except NotFound:
        return
    with contextlib.suppress(TimeoutError, ThreadClosed):
        async with ThreadReader(get_hub(), scope, pk, BEGINNING) as reader:
            async with asyncio.timeout(TREE_TIMEOUT_SECONDS):
                while not isinstance(item := await reader.next(), CaughtUp):
                    for event in protocol_events(item) if item is not None else ():
                        handler.tree.update(event)
