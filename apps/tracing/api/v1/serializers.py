"""Request bodies and query parameters of the v1 read routes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from apps.core.api import validate
from apps.core.drf import StorableJSONField
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.trace_store import RunType
from apps.tracing.api.v1.project_listing import SORTS
from apps.tracing.models import TraceTier
from apps.tracing.services.projects import MAX_NAME_LENGTH

# Names of run fields in the API; `select` rejects others.
SELECTABLE = frozenset(
    """
    id name run_type start_time end_time status error extra events inputs inputs_preview
    inputs_s3_urls inputs_or_signed_url outputs outputs_preview outputs_s3_urls
    outputs_or_signed_url s3_urls error_or_signed_url events_or_signed_url extra_or_signed_url
    serialized_or_signed_url parent_run_id manifest_id manifest_s3_id manifest session_id
    serialized reference_example_id reference_dataset_id total_tokens prompt_tokens
    prompt_token_details completion_tokens completion_token_details total_cost prompt_cost
    prompt_cost_details completion_cost completion_cost_details price_model_id first_token_time
    trace_id dotted_order last_queued_at feedback_stats child_run_ids direct_child_run_ids
    parent_run_ids tags in_dataset app_path share_token trace_tier trace_first_received_at
    ttl_seconds trace_upgrade thread_id trace_min_max_start_time messages inserted_at
    error_preview execution_order attachments
    """.split()  # noqa: SIM905  (sixty quoted names are harder to read)
)


def query_params(
    serializer_class: type[serializers.Serializer[Any]], request: Request
) -> dict[str, Any]:
    """Validate the query string and return its fields.

    A list repeats its parameter or separates values by commas; an empty value means absent.
    """
    lists = {
        name
        for name, field in serializer_class().fields.items()
        if isinstance(field, serializers.ListField)
    }
    fields: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        if name in lists:
            fields[name] = [part for value in values for part in value.split(",") if part]
        elif values[-1] != "":
            fields[name] = values[-1]
    return validate(serializer_class, fields)


class OneOrMany(serializers.ListField):
    """A list; a single string is accepted as a list of one item."""

    def to_internal_value(self, data: Any) -> list[Any]:
        result: list[Any] = super().to_internal_value([data] if isinstance(data, str) else data)
        return result


class RunFilterSerializer(serializers.Serializer[Any]):
    """A filter of runs; null means absent.

    `data_source_type` is accepted and ignored, because there is one store.
    """

    session = OneOrMany(child=serializers.UUIDField(), required=False, allow_null=True)
    id = OneOrMany(child=serializers.UUIDField(), required=False, allow_null=True)
    trace = serializers.UUIDField(required=False, allow_null=True)
    parent_run = serializers.UUIDField(required=False, allow_null=True)
    run_type = serializers.ChoiceField(
        choices=[str(kind) for kind in RunType], required=False, allow_null=True
    )
    reference_example = OneOrMany(child=serializers.UUIDField(), required=False, allow_null=True)
    is_root = serializers.BooleanField(required=False, allow_null=True, default=None)
    reference_dataset_id = serializers.UUIDField(required=False, allow_null=True)
    execution_order = serializers.IntegerField(required=False, allow_null=True)
    error = serializers.BooleanField(required=False, allow_null=True, default=None)
    start_time = serializers.DateTimeField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    trace_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    tree_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    search_filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    query = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=2000
    )


class RunsQuerySerializer(RunFilterSerializer):
    """A filter of runs, a page and the selected fields."""

    limit = serializers.IntegerField(required=False, allow_null=True, min_value=1)
    cursor = serializers.CharField(required=False, allow_null=True)
    order = serializers.ChoiceField(choices=["asc", "desc"], required=False, allow_null=True)
    select = serializers.ListField(child=serializers.CharField(), required=False, allow_null=True)
    skip_pagination = serializers.BooleanField(required=False, allow_null=True, default=None)
    skip_prev_cursor = serializers.BooleanField(required=False, allow_null=True, default=None)

    def validate_select(self, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if name not in SELECTABLE:
                raise serializers.ValidationError(f"{name!r:.60} is not a field of a run.")
        return value


class ThreadRunsSerializer(serializers.Serializer[Any]):
    """Query parameters of a thread's turns."""

    session_id = serializers.UUIDField(required=False)
    select = serializers.ListField(
        child=serializers.ChoiceField(choices=sorted(SELECTABLE)), required=False
    )
    limit = serializers.IntegerField(required=False, min_value=1, max_value=100, default=100)
    offset = serializers.IntegerField(required=False, min_value=0, max_value=10_000, default=0)


class ProjectFields(serializers.Serializer[Any]):
    """Fields of a project that clients may set."""

    description = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    extra = StorableJSONField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    default_dataset_id = serializers.UUIDField(required=False, allow_null=True)
    trace_tier = serializers.ChoiceField(choices=TraceTier.choices, required=False, allow_null=True)
    longlived_ttl_days = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=36_600, source="long_days"
    )

    def validate_extra(self, value: Any) -> Any:
        if value is not None and not isinstance(value, dict):
            raise serializers.ValidationError("Must be an object.")
        return value


class CreateProjectSerializer(ProjectFields):
    id = serializers.UUIDField(required=False, allow_null=True)
    name = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=MAX_NAME_LENGTH
    )
    start_time = serializers.DateTimeField(required=False, allow_null=True)
    reference_dataset_id = serializers.UUIDField(required=False, allow_null=True)
    num_examples = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=2**31
    )
    num_repetitions = serializers.IntegerField(
        required=False, allow_null=True, min_value=0, max_value=10_000
    )
    evaluator_keys = serializers.ListField(
        child=serializers.CharField(max_length=1000), required=False, allow_null=True
    )
    tag_value_ids = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        allow_null=True,
        max_length=MAX_TAGS_PER_REQUEST,
    )
    kicked_off_by = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=MAX_NAME_LENGTH
    )


class UpdateProjectSerializer(ProjectFields):
    name = serializers.CharField(required=False, allow_null=True, max_length=MAX_NAME_LENGTH)


class ProjectListSerializer(serializers.Serializer[Any]):
    """Query parameters of the list of projects."""

    limit = serializers.IntegerField(required=False, min_value=1, max_value=1000, default=100)
    offset = serializers.IntegerField(required=False, min_value=0, default=0)
    name = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    name_contains = serializers.CharField(required=False, allow_blank=True)
    id = serializers.ListField(child=serializers.UUIDField(), required=False)
    reference_free = serializers.BooleanField(required=False, allow_null=True, default=None)
    reference_dataset = serializers.ListField(child=serializers.UUIDField(), required=False)
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, max_length=MAX_TAGS_PER_REQUEST
    )
    metadata = StorableJSONField(required=False, binary=True)
    filter = serializers.CharField(required=False)
    dataset_version = serializers.CharField(required=False, max_length=200)
    sort_by = serializers.ChoiceField(choices=SORTS, required=False, default="start_time")
    sort_by_desc = serializers.BooleanField(required=False, default=True)
    sort_by_feedback_key = serializers.CharField(required=False, max_length=1000)
    sort_by_feedback_source = serializers.ChoiceField(choices=["run", "session"], required=False)
    include_stats = serializers.BooleanField(required=False, default=False)
    stats_filter = serializers.CharField(required=False)
    stats_select = serializers.ListField(child=serializers.CharField(), required=False)
    stats_start_time = serializers.DateTimeField(required=False)
    facets = serializers.BooleanField(required=False, default=False)


class ProjectStatsSerializer(serializers.Serializer[Any]):
    """Query parameters of one project."""

    include_stats = serializers.BooleanField(required=False, default=False)
    stats_filter = serializers.CharField(required=False)
    stats_select = serializers.ListField(child=serializers.CharField(), required=False)
    stats_start_time = serializers.DateTimeField(required=False)
    facets = serializers.BooleanField(required=False, default=True)


class ProjectMetadataSerializer(serializers.Serializer[Any]):
    """Query parameters of a project's metadata."""

    metadata_keys = serializers.ListField(child=serializers.CharField(), required=False)
    start_time = serializers.DateTimeField(required=False)
    k = serializers.IntegerField(required=False, min_value=1, max_value=100, default=10)


class ResolutionSerializer(serializers.Serializer[Any]):
    """Query parameters that identify a project by agent or experiment."""

    kind = serializers.ChoiceField(choices=["AGENT", "EXPERIMENT", "EVALUATOR"])
    id = serializers.CharField(required=False, max_length=63)
    environment = serializers.ChoiceField(
        choices=["LOCAL", "DEVELOPMENT", "STAGING", "PRODUCTION"], required=False
    )
