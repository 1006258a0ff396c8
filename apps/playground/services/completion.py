"""Calls of models whose whole reply is the response: texts that the platform asks for."""

from __future__ import annotations

from contextlib import aclosing

from apps.core.callers import Caller
from apps.core.sync_bridge import in_thread
from apps.playground.services import call_records
from apps.playground.services.call_records import ModelCallResult
from apps.playground.services.calls import CallExecution
from apps.playground.services.streaming import ColumnCall, call_slots
from apps.providers.chat import ChatRequest
from apps.providers.client import PreparedCall, prepare_call


def prepare_text(caller: Caller, chat: ChatRequest) -> PreparedCall:
    """Prepare a call in a thread. Raises the errors of `prepare_call`."""
    return prepare_call(
        workspace_id=caller.workspace_id, organization_id=caller.organization_id, chat=chat
    )


async def complete(call: PreparedCall) -> CallExecution:
    """Wait for the whole reply. Raises `PlaygroundBusy`, and the errors of `stream_chat`."""
    with call_slots.hold(call.organization_id):
        execution = CallExecution(call)
        async with aclosing(execution.run()) as events:
            async for _ in events:
                pass
    return execution


async def complete_recorded(column: ColumnCall) -> tuple[CallExecution, ModelCallResult]:
    """Wait for the whole reply, and record the call as a run."""
    execution, error = CallExecution(column.call), "Cancelled: the reader left."
    with call_slots.hold(column.call.organization_id):
        start = call_records.build_start(column.record)
        await in_thread(call_records.store, column.workspace_id, [start])
        result = None
        try:
            async with aclosing(execution.run()) as events:
                async for _ in events:
                    pass
            result = execution.result()
        except Exception as exception:
            error = str(exception)
            raise
        finally:
            end = call_records.build_end(column.record, result or execution.result(error=error))
            await in_thread(call_records.store, column.workspace_id, [end])
    return execution, result
