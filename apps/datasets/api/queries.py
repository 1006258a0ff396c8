"""Query parameters of the lists of datasets and examples."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from django.db.models import Q, TextField, Value
from django.db.models.expressions import Func
from django.db.models.functions import Cast, Concat
from rest_framework import serializers
from rest_framework.request import Request

from apps.core import errors as core_errors
from apps.core.api import validate
from apps.core.timestamps import parse_timestamp
from apps.datasets.api.rendering import EXAMPLE_FIELDS
from apps.datasets.models import Dataset, DataType, ExampleRevision
from apps.datasets.querysets import DatasetQuerySet, ExampleRevisionQuerySet
from apps.datasets.services.datasets import get_dataset
from apps.datasets.services.versions import LATEST, resolve_as_of
from apps.organizations.models import ResourceType
from apps.organizations.services.tags import filter_by_tags
from apps.trace_store import filters
from apps.trace_store.filters import orm

MAX_PAGE_SIZE = 100
MAX_IDS = 1000
MAX_OFFSET = 2**31 - 1
DATASET_SORTS = (
    "name", "created_at", "last_session_start_time", "example_count", "session_count",
    "modified_at",
)  # fmt: skip


class JsonObjectField(serializers.CharField):
    """A JSON object in the query string."""

    def to_internal_value(self, data: Any) -> Any:
        try:
            value = orjson.loads(super().to_internal_value(data))
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise serializers.ValidationError("The value must be a JSON object.")
        return value


class IdsField(serializers.ListField):
    """Ids that repeat the parameter or are separated by commas."""

    def __init__(self) -> None:
        super().__init__(child=serializers.UUIDField(), required=False, max_length=MAX_IDS)


class DatasetPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE_SIZE, default=MAX_PAGE_SIZE
    )
    offset = serializers.IntegerField(required=False, min_value=0, max_value=MAX_OFFSET, default=0)


class DatasetFilterSerializer(serializers.Serializer[Any]):
    """Filters of the v1 and v2 lists."""

    id = IdsField()
    name = serializers.CharField(required=False)
    name_contains = serializers.CharField(required=False)
    data_type = serializers.ListField(
        child=serializers.ChoiceField(choices=DataType.choices), required=False
    )
    metadata = JsonObjectField(required=False)
    sort_by = serializers.ChoiceField(choices=DATASET_SORTS, required=False, default="created_at")
    tag_value_id = IdsField()
    exclude = serializers.ListField(
        child=serializers.ChoiceField(choices=["example_count"]), required=False, default=list
    )
    # No dataset stores corrections of evaluators, so there is none to leave out.
    exclude_corrections_datasets = serializers.BooleanField(required=False, default=False)


class DatasetListSerializer(DatasetFilterSerializer, DatasetPageSerializer):
    sort_by_desc = serializers.BooleanField(required=False, default=True)


class DatasetListV2Serializer(DatasetFilterSerializer):
    cursor = serializers.CharField(required=False)
    page_size = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE_SIZE, default=20
    )
    sort_order = serializers.ChoiceField(choices=["asc", "desc"], required=False, default="desc")


class ExampleFilterSerializer(serializers.Serializer[Any]):
    """Filters of examples, combined with AND."""

    dataset = serializers.UUIDField(required=False)
    id = IdsField()
    as_of = serializers.CharField(required=False)
    splits = serializers.ListField(child=serializers.CharField(), required=False)
    metadata = JsonObjectField(required=False)
    filter = serializers.CharField(required=False)
    full_text_contains = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=20
    )


class ExampleListSerializer(ExampleFilterSerializer, DatasetPageSerializer):
    order = serializers.ChoiceField(
        choices=["recent", "random", "recently_created", "id"], required=False, default="recent"
    )
    random_seed = serializers.FloatField(required=False, default=0)
    descending = serializers.BooleanField(required=False, allow_null=True, default=None)
    select = serializers.ListField(
        child=serializers.ChoiceField(choices=EXAMPLE_FIELDS), required=False, default=list
    )
    exclude_default_fields = serializers.BooleanField(required=False, default=False)
    # Inputs and outputs are always in the response, so both values mean the same.
    inline_s3_urls = serializers.BooleanField(required=False, default=True)


_VERBATIM_LISTS = ("splits", "full_text_contains")
"""Lists whose items may contain commas."""


def query_params(
    serializer_class: type[serializers.Serializer[Any]], request: Request
) -> dict[str, Any]:
    """Validate the query string; unknown parameters are refused by name.

    A list repeats its parameter or, if its items are ids or names of the API, separates them by
    commas. An empty value means absent.
    """
    known = serializer_class().fields
    params: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        field = known.get(name)
        if field is None:
            raise core_errors.Invalid(f"There is no parameter `{name:.60}`.")
        if not isinstance(field, serializers.ListField):
            if values[-1] != "":
                params[name] = values[-1]
        elif name in _VERBATIM_LISTS:
            params[name] = [value for value in values if value]
        else:
            params[name] = [part for value in values for part in value.split(",") if part]
    return validate(serializer_class, params)


def filter_datasets(workspace_id: UUID, params: dict[str, Any]) -> DatasetQuerySet:
    """Return the datasets that match the validated parameters."""
    datasets = Dataset.objects.for_workspace(workspace_id).present()
    if "id" in params:
        datasets = datasets.filter(pk__in=params["id"])
    if "name" in params:
        datasets = datasets.filter(name=params["name"])
    if "name_contains" in params:
        datasets = datasets.filter(name__icontains=params["name_contains"])
    if "data_type" in params:
        datasets = datasets.filter(data_type__in=params["data_type"])
    if "metadata" in params:
        datasets = datasets.filter(extra__metadata__contains=params["metadata"])
    if params.get("tag_value_id"):
        datasets = filter_by_tags(
            datasets, workspace_id, params["tag_value_id"], [ResourceType.DATASET]
        )
    return datasets


class ExampleSelection:
    """The examples that a request selects, in one version of one dataset or by id."""

    def __init__(self, workspace_id: UUID, params: dict[str, Any]) -> None:
        """Raises `DatasetNotFound` and `VersionNotFound`."""
        dataset_id = params.get("dataset")
        if dataset_id is None and not params.get("id"):
            raise core_errors.Invalid("Set `dataset` or `id`.")
        self.params = params
        self.dataset = None if dataset_id is None else get_dataset(workspace_id, dataset_id)
        self.version_at = self._resolve_version()
        rows = ExampleRevision.objects.for_workspace(workspace_id).as_of(self.version_at)
        if self.dataset is None:
            rows = rows.filter(dataset__deleted_at=None)
        else:
            rows = rows.filter(dataset=self.dataset)
        self.valid_rows = rows
        """All examples of the version."""
        self.rows = _filter_examples(rows, params)

    @property
    def is_filtered(self) -> bool:
        names = ("id", "splits", "metadata", "filter", "full_text_contains")
        return any(self.params.get(name) for name in names)

    def _resolve_version(self) -> datetime | None:
        as_of = self.params.get("as_of")
        if self.dataset is not None:
            return resolve_as_of(self.dataset, as_of)
        if not as_of or as_of == LATEST:
            return None
        try:
            return parse_timestamp(as_of, "as_of")
        except ValueError:
            raise core_errors.Invalid("`as_of`: a tag needs `dataset`.") from None


def _filter_examples(
    rows: ExampleRevisionQuerySet, params: dict[str, Any]
) -> ExampleRevisionQuerySet:
    if "id" in params:
        rows = rows.filter(example_id__in=params["id"])
    if params.get("splits"):
        rows = rows.in_splits(params["splits"])
    if "metadata" in params:
        rows = rows.with_metadata(params["metadata"])
    if "filter" in params:
        rows = rows.filter(filter_condition(params["filter"]))
    for text in params.get("full_text_contains", ()):
        rows = rows.containing_text(text)
    return rows


def filter_condition(text: str) -> Q:
    """Compile a filter on examples; raises `FilterError`."""
    return orm.filter_to_q(filters.parse(text), metadata="metadata", columns=_COLUMNS)


_COLUMNS = {"id": "example_id", "start_time": "created_at"}


def order_examples(
    rows: ExampleRevisionQuerySet, params: dict[str, Any]
) -> ExampleRevisionQuerySet:
    """Sort the examples; each order is stable over pages of the same version."""
    descending = params["descending"]
    match params["order"]:
        case "id":
            return rows.order_by("-example_id" if descending else "example_id")
        case "random":
            seeded = Concat(Cast("example_id", TextField()), Value(str(params["random_seed"])))
            return rows.order_by(Func(seeded, function="md5"), "example_id")
        case "recently_created":
            if descending is False:
                return rows.order_by("created_at", "-position", "-example_id")
            return rows.order_by("-created_at", "position", "example_id")
    if descending is False:
        return rows.order_by("valid_from", "-position", "-example_id")
    return rows.newest_first()
