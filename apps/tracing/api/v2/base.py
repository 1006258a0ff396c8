"""What the routes of the second protocol share: two forms of an answer, selects, a time window."""

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
from apps.core.tenancy import get_or_404
from apps.trace_store.filters import Expression
from apps.trace_store.filters.builders import FeedbackTimeRange, has_feedback_condition
from apps.tracing import errors
from apps.tracing.api.run_queries import expression, moment
from apps.tracing.models import Project

WINDOW = timedelta(days=1)


class EventStreamRenderer(BaseRenderer, ABC):
    """A page as server-sent events, a refusal as JSON."""

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
        """What is sent of the page: names of events and their data, in order."""


class PatchStreamRenderer(EventStreamRenderer):
    """JSON Patches that make the page, an item each."""

    def events(self, page: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        return (("data", patch) for patch in _patches(page))


def _patches(page: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    yield [{"op": "add", "path": "", "value": {"items": []}}]
    for item in page["items"]:
        yield [{"op": "add", "path": "/items/-", "value": item}]
    if "next_cursor" in page:
        yield [{"op": "add", "path": "/next_cursor", "value": page["next_cursor"]}]


class SecondAPIView(WorkspaceAPIView):
    """A view of the second protocol."""

    def project(self, project_id: UUID | None) -> Project:
        """The project that is asked for; 404 when there is none, or it is somebody else's."""
        if project_id is None:
            raise errors.ProjectNotFound
        return get_or_404(Project.objects.for_workspace(self.workspace_id).present(), pk=project_id)


class PageAPIView(SecondAPIView):
    """One that answers with a page, at once or as a stream."""

    renderer_classes = (JSONRenderer, PatchStreamRenderer)


class UpperChoiceField(serializers.ChoiceField):
    """One of some words that the wire writes in capitals; any case is understood."""

    def to_internal_value(self, data: Any) -> str:
        return str(super().to_internal_value(data.upper() if isinstance(data, str) else data))


class SearchSerializer(serializers.Serializer[Any]):
    """What every query of the second protocol may hold."""

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
                raise errors.NeedsModel(f"`{name}` needs a language model, which is not here.")
        return attrs


class FeedbackTimesSerializer(SearchSerializer):
    """And when feedback was changed, of which its filters speak."""

    min_feedback_modified_at = serializers.DateTimeField(required=False, allow_null=True)
    max_feedback_modified_at = serializers.DateTimeField(required=False, allow_null=True)


def filters_of(asked: dict[str, Any], *names: str) -> list[Expression | None]:
    """These filters, their conditions on feedback limited to the times that are asked for."""
    found = [expression(asked.get(name)) for name in names]
    times = FeedbackTimeRange(
        since=moment(asked.get("min_feedback_modified_at")),
        before=moment(asked.get("max_feedback_modified_at")),
    )
    if not times.conditions:
        return found
    if not any(map(has_feedback_condition, found)):
        raise core_errors.BadRequest(
            "min_feedback_modified_at and max_feedback_modified_at need a condition on feedback in"
            f" {' or '.join(names)}."
        )
    return [one and times.narrowed(one) for one in found]


def page_size(default: int, most: int) -> serializers.IntegerField:
    return serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=most, default=default
    )


def selects(choices: Iterable[str]) -> serializers.ListField:
    """Names of fields, as the wire has them; what is kept is as the answer has them."""
    return serializers.ListField(
        child=UpperChoiceField(choices=sorted(choices)), required=False, allow_null=True
    )


def window(asked: dict[str, Any], *, is_open: bool = False) -> tuple[datetime | None, datetime]:
    """From when to when: the last day unless said otherwise, or open towards the past."""
    now = datetime.now(UTC)
    begin = moment(asked.get("min_start_time"))
    if begin is None and not is_open:
        begin = now - WINDOW
    # A clock that is ahead of ours is no reason to hide a run.
    return begin, moment(asked.get("max_start_time")) or now + WINDOW
