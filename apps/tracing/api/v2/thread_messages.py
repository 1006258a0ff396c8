"""A thread as the conversation that it is: its turns, and in each the messages that are new."""

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
from apps.trace_store.postgres.reading import trace_times
from apps.tracing import conversations, errors, messages
from apps.tracing.api import paging
from apps.tracing.api.v1.serializers import query_params
from apps.tracing.api.v2.base import EventStreamRenderer, SecondAPIView
from apps.tracing.messages import Message, Part, ToolCall

_PAYLOADS = (Payload.INPUTS, Payload.OUTPUTS)


class ThreadMessagesSerializer(serializers.Serializer[Any]):
    """The query string of a thread's messages; pages are counted in turns."""

    project_id = serializers.UUIDField(required=False)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=10)
    cursor = serializers.CharField(required=False)
    trace_id = serializers.UUIDField(required=False)


class GroupStreamRenderer(EventStreamRenderer):
    """A group each, then where it goes on."""

    def events(self, page: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        yield from (("data", item) for item in page["items"])
        yield "metadata", {name: page[name] for name in ("next_cursor", "prev_cursor")}


class ThreadMessagesView(SecondAPIView):
    required_permission = Permission.RUNS_READ
    renderer_classes = (GroupStreamRenderer, JSONRenderer)

    @extend_schema(parameters=[ThreadMessagesSerializer], responses=dict)
    def get(self, request: ApiRequest, thread_key: str) -> Response:
        """A page of turns, oldest first, from the one of `trace_id` on when that is given."""
        asked = query_params(ThreadMessagesSerializer, request)
        project = self.project(asked.get("project_id"))
        cursor = asked.get("cursor")
        query = RunQuery(
            project_ids=[project.pk],
            is_root=True,
            oldest_first=True,
            where=filters.parse(f"eq(thread_id, {filters.quote(thread_key)})"),
            started_from=None if cursor else self._start_of(asked.get("trace_id"), project.pk),
        )
        page = paging.page(
            self.workspace_id, query, limit=asked["limit"], cursor=cursor, payloads=_PAYLOADS
        )
        numbers = trace_times.turn_numbers(self.workspace_id, project.pk, thread_key)
        if not numbers:
            raise errors.ThreadNotFound
        return Response(
            {
                "items": list(_groups(page.runs, numbers)),
                "next_cursor": page.following,
                "prev_cursor": page.previous,
            }
        )

    def _start_of(self, trace_id: UUID | None, project_id: UUID) -> datetime | None:
        if trace_id is None:
            return None
        root = run_store.get(self.workspace_id, trace_id, project_id=project_id, payloads=())
        if root is None:
            raise errors.RunNotFound("No such trace.")
        return root.row.start_time


def _groups(turns: Sequence[RunDetail], numbers: dict[UUID, int]) -> Iterator[dict[str, Any]]:
    known: list[Message] = []
    for turn in turns:
        boundary = {
            "trace_id": turn.row.trace_id,
            "turn_index": numbers.get(turn.row.trace_id, 1) - 1,
            "start_time": turn.row.start_time,
        }
        yield {"type": "turn_boundary", "turnBoundary": boundary}
        for payload in _PAYLOADS:
            said = conversations.fresh(messages.find(turn.value(payload)), known)
            known += said
            yield from map(_group, said)


def _group(message: Message) -> dict[str, Any]:
    if not message.tool_calls:
        return {"type": "message", "message": _message(message)}
    return {
        "type": "tool_interaction",
        "aiMessage": _message(message),
        "toolCalls": [_tool_call(call) for call in message.tool_calls],
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "name": message.name or None,
        "content": _content(message.parts),
        "tool_call_id": message.answers or None,
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    found: dict[str, Any] = {"id": call.id or None, "name": call.name, "arguments": call.arguments}
    if call.result:
        found["result"] = {
            "role": "tool",
            "content": _content(call.result),
            "tool_call_id": call.id or None,
            "is_error": call.failed,
        }
    return found


def _content(parts: Sequence[Part]) -> Any:
    """A text where there is nothing else."""
    if all(part.kind == "text" for part in parts):
        return "\n".join(part.text for part in parts)
    return [{"type": part.kind, "text": part.text} for part in parts]


routes = [
    path(
        "v2/threads/<path:thread_key>/messages",
        ThreadMessagesView.as_view(),
        name="v2-thread-messages",
    )
]
