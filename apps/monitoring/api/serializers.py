"""What the routes of charts take, checked as far as it does not need to be understood."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rest_framework import serializers

from apps.monitoring.buckets import Stride
from apps.monitoring.models import ChartType
from apps.monitoring.series import group_by_of
from apps.monitoring.services.computing import Frame
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.tracing.api.asking import moment


class StrideSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=366)
    hours = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=8784)
    minutes = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=600_000
    )


class FrameSerializer(serializers.Serializer[Any]):
    """The time to show, and how it is cut."""

    start_time = serializers.DateTimeField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    stride = StrideSerializer(required=False, allow_null=True)
    timezone = serializers.CharField(required=False, allow_null=True, max_length=100)
    group_by = serializers.JSONField(required=False, allow_null=True)
    omit_data = serializers.BooleanField(required=False, allow_null=True, default=None)

    def validate_timezone(self, value: str | None) -> ZoneInfo:
        try:
            return ZoneInfo(value or "UTC")
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise serializers.ValidationError("is no time zone that is known.") from None

    def validate_group_by(self, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise serializers.ValidationError("must be an object.")
        return value


def frame_of(data: Any) -> Frame:
    """The frame that a request's body describes."""
    body = FrameSerializer(data=data or {})
    body.is_valid(raise_exception=True)
    asked: dict[str, Any] = body.validated_data
    return Frame.of(
        start=moment(asked.get("start_time")),
        end=moment(asked.get("end_time")),
        stride=_stride(asked.get("stride")),
        zone=asked.get("timezone") or ZoneInfo("UTC"),
        group_by=group_by_of(asked.get("group_by")),
        with_data=not asked.get("omit_data"),
    )


def _stride(asked: dict[str, Any] | None) -> Stride | None:
    if not asked:
        return None
    rest = timedelta(hours=asked.get("hours") or 0, minutes=asked.get("minutes") or 0)
    days, rest = (asked.get("days") or 0) + rest.days, rest - timedelta(days=rest.days)
    # Days beside hours are a length; days alone are days of the calendar.
    return Stride(days) if not rest else Stride(rest=timedelta(days=days) + rest)


class SectionSerializer(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=200)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    index = serializers.IntegerField(
        required=False, allow_null=True, min_value=-1_000_000, max_value=1_000_000
    )


class OrganizationSectionListSerializer(serializers.Serializer[Any]):
    """The query string of the list of sections of an organization."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=100)
    offset = serializers.IntegerField(required=False, min_value=0, max_value=100_000, default=0)
    title_contains = serializers.CharField(required=False, allow_blank=True)
    ids = serializers.ListField(child=serializers.UUIDField(), required=False)
    sort_by = serializers.ChoiceField(
        choices=["title", "index", "created_at", "modified_at"], required=False
    )
    sort_by_desc = serializers.BooleanField(required=False, default=False)


class SectionListSerializer(OrganizationSectionListSerializer):
    """The same of a workspace, whose sections may carry tags."""

    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_TAGS_PER_REQUEST
    )


class CloneSerializer(serializers.Serializer[Any]):
    section_id = serializers.UUIDField(required=False, allow_null=True)
    session_id = serializers.UUIDField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs.get("section_id") is None) == (attrs.get("session_id") is None):
            raise serializers.ValidationError("Name either a section or a project.")
        return attrs


class JsonObjects(serializers.ListField):
    child = serializers.DictField()


class ChartSerializer(serializers.Serializer[Any]):
    """A chart; a block of text has its `markdown` and needs no title."""

    title = serializers.CharField(max_length=200, required=False)
    markdown = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    chart_type = serializers.ChoiceField(choices=ChartType.choices, required=False)
    index = serializers.IntegerField(
        required=False, allow_null=True, min_value=-1_000_000, max_value=1_000_000
    )
    section_id = serializers.UUIDField(required=False, allow_null=True)
    metadata = serializers.DictField(required=False, allow_null=True)
    common_filters = serializers.DictField(required=False, allow_null=True)
    series = JsonObjects(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        is_text = attrs.get("chart_type") == ChartType.TEXT
        if not self.partial and "title" not in attrs and not is_text:
            raise serializers.ValidationError({"title": "A chart has one."})
        said = {name: value for name, value in attrs.items() if name != "markdown"}
        # The words of a block of text stand where a chart has what is said about it.
        return said | (
            {"description": attrs["markdown"]} if attrs.get("markdown") is not None else {}
        )


class PreviewedSerializer(serializers.Serializer[Any]):
    chart_type = serializers.ChoiceField(
        choices=ChartType.choices, required=False, default=ChartType.LINE
    )
    common_filters = serializers.DictField(required=False, allow_null=True)
    series = JsonObjects()


class PreviewSerializer(serializers.Serializer[Any]):
    bucket_info = FrameSerializer()
    chart = PreviewedSerializer()
