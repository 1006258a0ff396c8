"""A thread as a conversation: its turns with the messages that are new in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.api import ApiRequest
from apps.core.drf import JSONRenderer
from apps.organizations.permissions import Permission
from apps.trace_store import Payload, RunDetail, RunQuery, filters, run_store
from apps.tracing import errors, messages
from apps.tracing.api import run_queries
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import EventStreamRenderer, V2APIView
from apps.tracing.messages import Message, MessagePart, ToolCall, part_json

MAX_PAGE_BYTES = 16_777_216
"""JSON of the turns whose messages are parsed for a page."""
_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS)


class ThreadMessagesSerializer(serializers.Serializer[Any]):
    """Query parameters of a thread's messages; a page counts turns."""

    project_id = serializers.UUIDField(required=False)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=10)
    cursor = serializers.CharField(required=False)
    trace_id = serializers.UUIDField(required=False)


class GroupStreamRenderer(EventStreamRenderer):
    """Yield one event per group, then the cursor."""

    def events(self, page: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        yield from (("data", item) for item in page["items"])
        yield "metadata", {name: page[name] for name in ("next_cursor", "prev_cursor")}


class ThreadMessagesView(V2APIView):
    required_permission = Permission.RUNS_READ
    renderer_classes = (GroupStreamRenderer, JSONRenderer)

    @extend_schema(parameters=[ThreadMessagesSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """Return a page of turns, oldest first, starting at `trace_id` if given."""
        params = query_params(ThreadMessagesSerializer, request)
        project = self.project(params.get("project_id"))
        cursor = params.get("cursor")
        query = RunQuery(
            project_ids=[project.pk],
            is_root=True,
            oldest_first=True,
            where=filters.thread_filter(thread_key),
            started_from=None if cursor else self._trace_start(params.get("trace_id"), project.pk),
        )
        page = run_queries.read_page(
            self.workspace_id,
            query,
            limit=params["limit"],
            cursor=cursor,
            payloads=_PAYLOADS,
            max_bytes=MAX_PAGE_BYTES,
        )
        numbers = run_store.fetch_turn_numbers(self.workspace_id, project.pk, thread_key)
        if not numbers:
            raise errors.TraceThreadNotFound
        return Response(
            {
                "items": list(_message_groups(page.runs, numbers)),
                "next_cursor": page.next_cursor,
                "prev_cursor": page.previous_cursor,
            }
        )

    def _trace_start(self, trace_id: UUID | None, project_id: UUID) -> datetime | None:
        if trace_id is None:
            return None
        root = run_store.get(self.workspace_id, trace_id, project_id=project_id, payloads=())
        if root is None:
            raise errors.RunNotFound("No such trace.")
        return root.row.start_time


def _message_groups(
    turns: Sequence[RunDetail], numbers: dict[UUID, int]
) -> Iterator[dict[str, Any]]:
    earlier: list[Message] = []
    for turn in turns:
        boundary = {
            "trace_id": turn.row.trace_id,
            "turn_index": numbers.get(turn.row.trace_id, 1) - 1,
            "start_time": turn.row.start_time,
        }
        yield {"type": "turn_boundary", "turnBoundary": boundary}
        for payload in _PAYLOADS:
            new_messages = messages.new_messages(
                messages.parse_messages(turn.value(payload)), earlier
            )
            earlier += new_messages
            yield from map(_group_json, new_messages)


def _group_json(message: Message) -> dict[str, Any]:
    if not message.tool_calls:
        return {"type": "message", "message": _message_json(message)}
    return {
        "type": "tool_interaction",
        "aiMessage": _message_json(message),
        "toolCalls": [_tool_call_json(call) for call in message.tool_calls],
    }


def _message_json(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "name": message.name or None,
        "content": _content_json(message.parts),
        "tool_call_id": message.tool_call_id or None,
    }


def _tool_call_json(call: ToolCall) -> dict[str, Any]:
    result: dict[str, Any] = {"id": call.id or None, "name": call.name, "arguments": call.arguments}
    if call.result:
        result["result"] = {
            "role": "tool",
            "content": _content_json(call.result),
            "tool_call_id": call.id or None,
            "is_error": call.failed,
        }
    return result


def _content_json(parts: Sequence[MessagePart]) -> Any:
    """Return a plain string if the message has only text."""
    if all(part.kind == "text" for part in parts):
        return "\n".join(part.text for part in parts)
    return [part_json(part) for part in parts]


routes = [
    path(
        "v2/threads/<path:thread_key>/messages",
        ThreadMessagesView.as_view(),
        name="v2-thread-messages",
    )
]
