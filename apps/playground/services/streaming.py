"""Runs one column by hand: prepares the call in a thread, and streams it from the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec
from django.urls import reverse
from django.utils import timezone

from apps.core import errors as core_errors
from apps.core.callers import Caller
from apps.core.json import dumps
from apps.core.loop_worker import decrement
from apps.core.sync_bridge import in_thread
from apps.datasets.services.content import check_schema
from apps.playground import errors
from apps.playground.services import call_records
from apps.playground.services.call_records import CallRecord, ModelCallResult
from apps.playground.services.calls import CallExecution, check_reply
from apps.playground.setting import Setting, StreamBody, check_setting, require_model
from apps.playground.templates import render_messages
from apps.providers.chat import (
    ChatEvent,
    ChatMessage,
    ChatRequest,
    Finished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageUpdate,
)
from apps.providers.client import PreparedCall, prepare_call
from apps.providers.errors import ProviderFailure
from apps.usage import quotas

log = logging.getLogger(__name__)

MAX_OPEN_CALLS = 20
"""Open calls by hand of an organization, in each process."""
PING_SECONDS = 15.0
_QUEUE_SIZE = 64
PING = b": ping\n\n"


class CallSlots:
    """Counts the open calls of each organization in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: Counter[UUID] = Counter()

    @contextmanager
    def hold(self, organization_id: UUID) -> Iterator[None]:
        """Hold a slot. Raises `PlaygroundBusy`."""
        with self._lock:
            if self._open[organization_id] >= MAX_OPEN_CALLS:
                raise errors.PlaygroundBusy
            self._open[organization_id] += 1
        try:
            yield
        finally:
            with self._lock:
                decrement(self._open, organization_id)


call_slots = CallSlots()


@dataclass(frozen=True, slots=True)
class ColumnCall:
    """A checked call of one column, ready to be streamed."""

    record: CallRecord
    call: PreparedCall = field(repr=False)

    @property
    def workspace_id(self) -> UUID:
        return self.record.workspace_id

    @property
    def trace_url(self) -> str:
        return reverse("trace-redirect", args=[self.workspace_id, self.record.run_id])


def build_chat(
    setting: Setting, variables: Mapping[str, Any], history: list[ChatMessage] | None = None
) -> ChatRequest:
    """Return the request of a setting with its variables filled in.

    Raises `BadSetting`, `MissingVariables`, `SchemaRefused`.
    """
    check_setting(setting)
    require_model(setting)
    if setting.response_schema is not None:
        check_schema(setting.response_schema, "response_schema")
    messages = render_messages(setting, variables) + (history or [])
    return ChatRequest(setting.model, messages, setting.tools, setting.response_schema)


def prepare_column(caller: Caller, body: StreamBody) -> ColumnCall:
    """Check the request of a column. Reads the workspace's key, so it runs in a thread.

    Raises the errors of `build_chat` and `prepare_call`, and `UsageLimitExceeded`.
    """
    chat = build_chat(body.setting, body.variables, body.history)
    call = prepare_call(
        workspace_id=caller.workspace_id, organization_id=caller.organization_id, chat=chat
    )
    quotas.check(caller.workspace_id)
    record = CallRecord(
        workspace_id=caller.workspace_id,
        setting=body.setting,
        chat=chat,
        started_at=timezone.now(),
        letter=body.letter,
    )
    return ColumnCall(record, call)


async def stream_column(column: ColumnCall) -> AsyncGenerator[bytes, None]:
    """Yield the events of the call as server-sent events, and record it as a run.

    A call whose reader leaves is cancelled. Raises `PlaygroundBusy` before the first event.
    """
    with call_slots.hold(column.call.organization_id):
        await in_thread(
            call_records.store, column.workspace_id, [call_records.build_start(column.record)]
        )
        execution, failure, is_complete = CallExecution(column.call), None, False
        try:
            yield _encode(
                "start",
                {
                    "run_id": column.record.run_id,
                    "trace_url": column.trace_url,
                    "messages": msgspec.to_builtins(column.record.chat.messages),
                },
            )
            async with aclosing(_read(execution)) as pieces:
                async for piece in pieces:
                    yield piece
            is_complete = True
        except core_errors.AppError as error:
            failure, is_complete = error, True
        finally:
            if not is_complete:
                result = execution.result(error="Cancelled: the reader left.")
                await asyncio.shield(in_thread(_store_end, column, result))
        if failure is not None:
            yield _encode("error", describe_failure(failure, column.call.provider.id))
        result = execution.result(error=None if failure is None else failure.detail)
        yield _encode("end", await in_thread(_finish, column, execution, result))


async def _read(execution: CallExecution) -> AsyncGenerator[bytes, None]:
    """Yield encoded events, and comments while the provider is silent."""
    queue: asyncio.Queue[ChatEvent | Exception | None] = asyncio.Queue(_QUEUE_SIZE)

    async def produce() -> None:
        try:
            async with aclosing(execution.run()) as events:
                async for event in events:
                    await queue.put(event)
        except Exception as error:  # noqa: BLE001  (raised by the reader)
            await queue.put(error)
        else:
            await queue.put(None)

    producer, has_first_token = asyncio.create_task(produce()), False
    try:
        while True:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    event = await queue.get()
            except TimeoutError:
                yield PING
                continue
            if event is None:
                return
            if isinstance(event, Exception):
                raise event
            if not has_first_token and execution.first_token_seconds is not None:
                has_first_token = True
                yield _encode("first_token", {"ms": round(execution.first_token_seconds * 1000)})
            if encoded := _encode_event(event):
                yield encoded
    finally:
        producer.cancel()
        await asyncio.wait({producer})


def _encode_event(event: ChatEvent) -> bytes:
    match event:
        case TextDelta():
            return _encode("text", {"text": event.text})
        case ThinkingDelta():
            return _encode("thinking", {"text": event.text}) if event.text else b""
        case ToolCallDelta():
            fields = {"index": event.index, "id": event.id, "name": event.name}
            return _encode("tool_call", fields | {"arguments": event.arguments})
        case UsageUpdate() | Finished():
            return b""


def _encode(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(data))


def describe_failure(error: core_errors.AppError, provider: str) -> dict[str, Any]:
    """The failure of a call as JSON."""
    failure = error if isinstance(error, ProviderFailure) else ProviderFailure()
    return {
        "code": error.code,
        "detail": error.detail,
        "provider": provider,
        "status": failure.provider_status,
        "retry_after": failure.retry_after,
    }


def _finish(
    column: ColumnCall, execution: CallExecution, result: ModelCallResult
) -> dict[str, Any]:
    """Record the end of the call; return it as JSON."""
    _store_end(column, result)
    chat = column.record.chat
    schema_errors = None
    if result.error is None and not execution.reply.calls:
        schema_errors = check_reply(chat.response_schema, execution.reply.text)
    first_token = execution.first_token_seconds
    return {
        "status": "success" if result.error is None else "error",
        "run_id": column.record.run_id,
        "message": None if result.message is None else msgspec.to_builtins(result.message),
        "finish_reason": result.finish_reason,
        "usage": None if result.usage is None else result.usage.as_json(),
        "cost": call_records.compute_cost(
            column.workspace_id, chat.model, result.usage, column.record.started_at
        ),
        "latency_ms": round(execution.seconds * 1000),
        "first_token_ms": None if first_token is None else round(first_token * 1000),
        "schema_errors": schema_errors,
    }


def _store_end(column: ColumnCall, result: ModelCallResult) -> None:
    """Record the end of the call. The reply is not lost if its run is refused."""
    operation = call_records.build_end(column.record, result)
    try:
        refused = call_records.store(column.workspace_id, [operation])
    except core_errors.AppError as error:
        refused = {column.record.run_id: error.detail}
    for run_id, reason in refused.items():
        log.warning("The playground run %s was not stored: %s", run_id, reason)
