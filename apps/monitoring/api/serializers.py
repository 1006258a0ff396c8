"""Request bodies and query strings of the chart routes; `series.py` parses the series."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from rest_framework import serializers

from apps.core.api import validate
from apps.core.drf import StorableJSONField
from apps.monitoring.buckets import Stride
from apps.monitoring.models import ChartType
from apps.monitoring.series import parse_group_by
from apps.monitoring.services.chart_computer import TimeRange
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.tracing.api.run_queries import parse_time


class StrideSerializer(serializers.Serializer[Any]):
    days = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=366)
    hours = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=8784)
    minutes = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=600_000
    )


class TimeRangeSerializer(serializers.Serializer[Any]):
    """The period to show, and the length of its buckets."""

    start_time = serializers.DateTimeField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    stride = StrideSerializer(required=False, allow_null=True)
    timezone = serializers.CharField(required=False, allow_null=True, max_length=100)
    group_by = StorableJSONField(required=False, allow_null=True)
    omit_data = serializers.BooleanField(required=False, allow_null=True, default=None)

    def validate_timezone(self, value: str | None) -> ZoneInfo:
        try:
            return ZoneInfo(value or "UTC")
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise serializers.ValidationError("is not a known time zone.") from None

    def validate_group_by(self, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise serializers.ValidationError("must be an object.")
        return value


def parse_time_range(data: Any) -> TimeRange:
    """Parse the time range in a request body."""
    fields = validate(TimeRangeSerializer, data or {})
    return TimeRange.with_defaults(
        start=parse_time(fields.get("start_time")),
        end=parse_time(fields.get("end_time")),
        stride=_parse_stride(fields.get("stride")),
        zone=fields.get("timezone") or ZoneInfo("UTC"),
        group_by=parse_group_by(fields.get("group_by")),
        with_data=not fields.get("omit_data"),
    )


def _parse_stride(fields: dict[str, Any] | None) -> Stride | None:
    if not fields:
        return None
    duration = timedelta(hours=fields.get("hours") or 0, minutes=fields.get("minutes") or 0)
    days, duration = (
        (fields.get("days") or 0) + duration.days,
        duration - timedelta(days=duration.days),
    )
    # Days alone are calendar days; days with hours or minutes are a fixed duration.
    return Stride(days) if not duration else Stride(duration=timedelta(days=days) + duration)


class SectionSerializer(serializers.Serializer[Any]):
    title = serializers.CharField(max_length=200)
    description = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    index = serializers.IntegerField(
        required=False, allow_null=True, min_value=-1_000_000, max_value=1_000_000
    )


class OrganizationSectionListSerializer(serializers.Serializer[Any]):
    """Query string of the section list of an organization."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=100)
    offset = serializers.IntegerField(required=False, min_value=0, max_value=100_000, default=0)
    title_contains = serializers.CharField(required=False, allow_blank=True)
    ids = serializers.ListField(child=serializers.UUIDField(), required=False)
    sort_by = serializers.ChoiceField(
        choices=["title", "index", "created_at", "modified_at"], required=False
    )
    sort_by_desc = serializers.BooleanField(required=False, default=False)


class SectionListSerializer(OrganizationSectionListSerializer):
    """Query string of the section list of a workspace, whose sections have tags."""

    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_TAGS_PER_REQUEST
    )


class CloneSerializer(serializers.Serializer[Any]):
    section_id = serializers.UUIDField(required=False, allow_null=True)
    session_id = serializers.UUIDField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if (attrs.get("section_id") is None) == (attrs.get("session_id") is None):
            raise serializers.ValidationError("Set either `section_id` or `session_id`.")
        return attrs


class JsonObjectsField(serializers.ListField):
    child = serializers.DictField()


class ChartSerializer(serializers.Serializer[Any]):
    """A chart. A text block has `markdown` and needs no title."""

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
    series = JsonObjectsField(required=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        is_text = attrs.get("chart_type") == ChartType.TEXT
        if not self.partial and "title" not in attrs and not is_text:
            raise serializers.ValidationError({"title": "This field is required."})
        fields = {name: value for name, value in attrs.items() if name != "markdown"}
        if attrs.get("markdown") is not None:
            # The text of a text block is stored as its description.
            fields["description"] = attrs["markdown"]
        return fields


class PreviewChartSerializer(serializers.Serializer[Any]):
    chart_type = serializers.ChoiceField(
        choices=ChartType.choices, required=False, default=ChartType.LINE
    )
    common_filters = serializers.DictField(required=False, allow_null=True)
    series = JsonObjectsField()


class PreviewSerializer(serializers.Serializer[Any]):
    bucket_info = TimeRangeSerializer()
    chart = PreviewChartSerializer()
