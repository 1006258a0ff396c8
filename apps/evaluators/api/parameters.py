"""Query parameters of the API of evaluators."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.drf import StorableJSONField
from apps.core.errors import Invalid
from apps.evaluators.models import EvaluationStatus, EvaluatorType
from apps.evaluators.services.spend_days import SPEND_GROUPS
from apps.tracing.api.v2.base import UpperChoiceField, page_size_field

MAX_OFFSET = 1_000_000
MAX_IDS = 100
SORTS = ("name", "created_at", "updated_at")
_UNSUPPORTED = ("tag_value_id", "agent_id")


def _ids(**options: Any) -> serializers.ListField:
    return serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_IDS, **options
    )


class LogPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=100, min_value=1, max_value=100)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=MAX_OFFSET)
    status = serializers.ChoiceField(choices=EvaluationStatus.values, required=False)
    run_id = serializers.UUIDField(required=False)


class _SupportedSerializer(serializers.Serializer[Any]):
    """Refuses parameters of the public clients for functions that there are not."""

    def to_internal_value(self, data: Any) -> Any:
        for name in _UNSUPPORTED:
            if data.get(name):
                raise Invalid(f"`{name}` is not supported.", [{"field": name}])
        return super().to_internal_value(data)


class EvaluatorListSerializer(_SupportedSerializer):
    limit = serializers.IntegerField(default=20, min_value=1, max_value=100)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=MAX_OFFSET)
    name_contains = serializers.CharField(required=False, max_length=200)
    type = serializers.ChoiceField(
        choices=[*EvaluatorType.values, "decision_model"], required=False
    )
    feedback_key = serializers.CharField(required=False, max_length=1000)
    resource_id = _ids()
    metadata = StorableJSONField(required=False, binary=True)
    sort_by = serializers.ChoiceField(choices=SORTS, default="created_at")
    sort_by_desc = serializers.BooleanField(default=True)


class RuleListSerializer(_SupportedSerializer):
    id = _ids()
    session_id = serializers.UUIDField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    evaluator_id = serializers.UUIDField(required=False)
    name_contains = serializers.CharField(required=False, max_length=200)
    type = serializers.ChoiceField(choices=["session", "dataset"], required=False)
    include_backfill_progress = serializers.BooleanField(default=False)


class RulePageSerializer(_SupportedSerializer):
    id = _ids()
    project_id = serializers.UUIDField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    evaluator_id = serializers.UUIDField(required=False)
    name_contains = serializers.CharField(required=False, max_length=200)
    type = UpperChoiceField(choices=["PROJECT", "DATASET"], required=False)
    include_backfill_progress = serializers.BooleanField(default=False)
    page_size = page_size_field(20, 100)
    cursor = serializers.CharField(required=False, allow_blank=True, max_length=200)


class AppliedRunsSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=150, min_value=1, max_value=1440)
    cursor = serializers.CharField(required=False, allow_blank=True, max_length=200)
    backfill = serializers.BooleanField(default=False)
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)
    session_id = serializers.UUIDField(required=False)


class SpendSerializer(_SupportedSerializer):
    period_start = serializers.DateField()
    group_by = serializers.ChoiceField(choices=[*SPEND_GROUPS], required=False)
    evaluator_id = serializers.UUIDField(required=False)
    session_id = serializers.UUIDField(required=False)
    dataset_id = serializers.UUIDField(required=False)
    resource_id = _ids()
    type = serializers.ChoiceField(
        choices=[*EvaluatorType.values, "decision_model"], required=False
    )
    feedback_key = serializers.CharField(required=False, max_length=1000)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        entities = [name for name in ("evaluator_id", "session_id", "dataset_id") if name in attrs]
        if len(entities) + ("group_by" in attrs) != 1:
            raise Invalid(
                "Send exactly one of `group_by`, `evaluator_id`, `session_id` and `dataset_id`."
            )
        for name in ("resource_id", "type", "feedback_key"):
            if attrs.get(name) and entities:
                raise Invalid(f"`{name}` needs `group_by`.", [{"field": name}])
        return attrs


class DeletionSerializer(serializers.Serializer[Any]):
    delete_run_rules = serializers.BooleanField(default=False)


class BulkDeletionSerializer(DeletionSerializer):
    evaluator_ids = _ids(min_length=1)
