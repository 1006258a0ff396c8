"""Shared parts of the v2 API: JSON and event-stream responses, field selection, time windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.renderers import BaseRenderer

from apps.core import errors as core_errors
from apps.core.api import WorkspaceAPIView
from apps.core.drf import JSONRenderer
from apps.core.json import dumps
from apps.trace_store.errors import ProjectNotFound
from apps.trace_store.filters import Expression
from apps.trace_store.filters.builders import FeedbackTimeRange, has_feedback_condition
from apps.tracing import errors
from apps.tracing.api.run_queries import parse_filters, parse_time
from apps.tracing.models import Project
from apps.tracing.services import get_project

DEFAULT_WINDOW = timedelta(days=1)


class EventStreamRenderer(BaseRenderer, ABC):
    """Render a page as server-sent events, and errors as JSON."""

    media_type = "text/event-stream"
    format = "stream"
    charset = None

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        if renderer_context is None or renderer_context["response"].status_code >= 400:
            return dumps(data)
        return b"".join(
            b"event: %b\ndata: %b\n\n" % (name.encode(), dumps(event))
            for name, event in self.events(data)
        )

    @abstractmethod
    def events(self, page: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the names and data of the page's events."""


class PatchStreamRenderer(EventStreamRenderer):
    """Yield JSON Patches that build the page, one item each."""

    def events(self, page: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        return (("data", patch) for patch in _patches(page))


def _patches(page: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    yield [{"op": "add", "path": "", "value": {"items": []}}]
    for item in page["items"]:
        yield [{"op": "add", "path": "/items/-", "value": item}]
    if "next_cursor" in page:
        yield [{"op": "add", "path": "/next_cursor", "value": page["next_cursor"]}]


class V2APIView(WorkspaceAPIView):
    """A view of the v2 API."""

    def project(self, project_id: UUID | None) -> Project:
        """Return the workspace's project, or raise 404."""
        if project_id is None:
            raise ProjectNotFound
        return get_project(self.workspace_id, project_id)


class V2PageAPIView(V2APIView):
    """A view that returns a page as JSON or as an event stream."""

    renderer_classes = (JSONRenderer, PatchStreamRenderer)


class UpperChoiceField(serializers.ChoiceField):
    """A choice in upper case; input is case-insensitive."""

    def to_internal_value(self, data: Any) -> str:
        return str(super().to_internal_value(data.upper() if isinstance(data, str) else data))


class SearchSerializer(serializers.Serializer[Any]):
    """Fields that all v2 queries accept."""

    min_start_time = serializers.DateTimeField(required=False, allow_null=True)
    max_start_time = serializers.DateTimeField(required=False, allow_null=True)
    trace_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    tree_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    cursor = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    ai_search = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    sem_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        for name in ("ai_search", "sem_filter"):
            if attrs.get(name):
                raise errors.NeedsModel(
                    f"`{name}` needs a language model, which is not configured."
                )
        return attrs


class FeedbackTimesSerializer(SearchSerializer):
    """Adds the time range to which feedback conditions of the filters apply."""

    min_feedback_modified_at = serializers.DateTimeField(required=False, allow_null=True)
    max_feedback_modified_at = serializers.DateTimeField(required=False, allow_null=True)


def parse_filter_fields(params: dict[str, Any], *names: str) -> list[Expression | None]:
    """Parse the filters in these fields; limit their feedback conditions to the requested times."""
    expressions = [parse_filters(params.get(name)) for name in names]
    times = FeedbackTimeRange(
        since=parse_time(params.get("min_feedback_modified_at")),
        before=parse_time(params.get("max_feedback_modified_at")),
    )
    if not times.conditions:
        return expressions
    if not any(map(has_feedback_condition, expressions)):
        raise core_errors.BadRequest(
            "min_feedback_modified_at and max_feedback_modified_at need a condition on feedback in"
            f" {' or '.join(names)}."
        )
    return [item and times.narrow(item) for item in expressions]


def page_size_field(default: int, maximum: int) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=maximum, default=default
    )


def build_selection_field(choices: Iterable[str]) -> serializers.ListField:
    """Return a serializer field for a selection of response fields; input is case-insensitive."""
    return serializers.ListField(
        child=UpperChoiceField(choices=sorted(choices)), required=False, allow_null=True
    )


def time_window(
    params: dict[str, Any], *, is_open: bool = False
) -> tuple[datetime | None, datetime]:
    """Return start and end: the last day by default, or without start if `is_open`."""
    now = datetime.now(UTC)
    begin = parse_time(params.get("min_start_time"))
    if begin is None and not is_open:
        begin = now - DEFAULT_WINDOW
    # The window extends into the future, so that runs of clients with a fast clock are included.
    return begin, parse_time(params.get("max_start_time")) or now + DEFAULT_WINDOW
