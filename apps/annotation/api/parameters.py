"""Query parameters of annotation queues."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.annotation.services.sections import ReviewSection
from apps.datasets.api.queries import DatasetPageSerializer, IdsField
from apps.tracing.api.v2.base import UpperChoiceField

MAX_DELETED = 100
SORTS = ("name", "created_at", "updated_at")
ALL = "all"
_COMPLETED = "completed"


class SectionField(serializers.ChoiceField):
    """A section of a queue; older routes call archived items `completed`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=[*ReviewSection, _COMPLETED], required=False, **options)

    def to_internal_value(self, data: Any) -> ReviewSection:
        value = super().to_internal_value(data)
        return ReviewSection.ARCHIVED if value == _COMPLETED else ReviewSection(value)


def _flag(*, default: bool) -> serializers.BooleanField:
    return serializers.BooleanField(required=False, default=default)


class QueueListSerializer(DatasetPageSerializer):
    ids = IdsField()
    name = serializers.CharField(required=False)
    name_contains = serializers.CharField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    queue_type = serializers.ChoiceField(choices=["single", "pairwise"], required=False)
    assigned_to_me = _flag(default=False)
    include_rubric_keys = _flag(default=False)
    tag_value_id = IdsField()
    sort_by = serializers.ChoiceField(choices=SORTS, required=False, default="created_at")
    sort_by_desc = _flag(default=True)


class QueueDeletionSerializer(serializers.Serializer[Any]):
    queue_ids = serializers.ListField(
        child=serializers.UUIDField(), min_length=1, max_length=MAX_DELETED
    )


class RetentionSerializer(serializers.Serializer[Any]):
    extend_trace_retention = _flag(default=False)


class QueueRunsSerializer(DatasetPageSerializer):
    status = SectionField()
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    include_stats = _flag(default=True)


class QueueRunSerializer(serializers.Serializer[Any]):
    include_extra = _flag(default=True)


class SizeSerializer(serializers.Serializer[Any]):
    status = SectionField()


class ArchiveTimesSerializer(serializers.Serializer[Any]):
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)


class TraceTimesSerializer(serializers.Serializer[Any]):
    min_start_time = serializers.DateTimeField(required=False)
    max_start_time = serializers.DateTimeField(required=False)


class ItemListSerializer(TraceTimesSerializer):
    status = serializers.ChoiceField(choices=[*ReviewSection])
    cursor = serializers.CharField(required=False, max_length=200)
    direction = serializers.ChoiceField(
        choices=["forward", "backward"], required=False, default="forward"
    )
    item_type = UpperChoiceField(choices=["RUN", "THREAD"], required=False)
    page_size = serializers.IntegerField(required=False, min_value=1, max_value=100, default=20)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["direction"] == "backward" and "cursor" not in attrs:
            raise serializers.ValidationError("`direction=backward` needs `cursor`.")
        return attrs


class ItemCountSerializer(TraceTimesSerializer, ArchiveTimesSerializer):
    status = serializers.ChoiceField(choices=[ALL, *ReviewSection])

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["status"] != ReviewSection.ARCHIVED and {"start_time", "end_time"} & attrs.keys():
            raise serializers.ValidationError("`start_time` and `end_time` need `status=archived`.")
        return attrs
