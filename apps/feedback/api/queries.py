"""Query parameters of the feedback endpoints."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from apps.core.timestamps import as_utc
from apps.feedback.models import Feedback
from apps.feedback.querysets import FeedbackQuerySet

MAX_PAGE_SIZE = 100
MAX_VALUES = 1000
COMMA_SEPARATED = ("run", "session", "user")


def query_params(request: Request, repeated: Collection[str] = ()) -> dict[str, Any]:
    """Return the query parameters; those in `repeated` are lists.

    A list of ids may repeat the parameter or separate the ids by commas.
    """
    params: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        if name in COMMA_SEPARATED and name in repeated:
            params[name] = [part for value in values for part in value.split(",") if part]
        elif name in repeated:
            params[name] = values
        elif values[-1] != "":
            params[name] = values[-1]
    return params


class FeedbackPageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE_SIZE, default=MAX_PAGE_SIZE
    )
    offset = serializers.IntegerField(required=False, min_value=0, max_value=2**31 - 1, default=0)

    @property
    def page(self) -> slice:
        params = self.validated_data
        return slice(params["offset"], params["offset"] + params["limit"])


class ManyField(serializers.ListField):
    def __init__(self, child: serializers.Field[Any, Any, Any, Any]) -> None:
        super().__init__(child=child, required=False, max_length=MAX_VALUES)


class SourceField(serializers.CharField):
    """A source type. The Python client sends the enum name instead of the value."""

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        name = text.removeprefix("FeedbackSourceType.")
        return text if name == text else name.lower()


def _optional_boolean() -> serializers.BooleanField:
    return serializers.BooleanField(required=False, allow_null=True, default=None)


class FeedbackListSerializer(FeedbackPageSerializer):
    """Filters of a feedback list, combined with AND."""

    run = ManyField(serializers.UUIDField())
    key = ManyField(serializers.CharField())
    session = ManyField(serializers.UUIDField())
    source = ManyField(SourceField())  # type: ignore[assignment]
    user = ManyField(serializers.UUIDField())
    level = serializers.ChoiceField(choices=["run", "session"], required=False)
    has_comment = _optional_boolean()
    has_score = _optional_boolean()
    feedback_thread_id = serializers.CharField(required=False)
    comparative_experiment_id = serializers.UUIDField(required=False)
    min_created_at = serializers.DateTimeField(required=False)
    max_created_at = serializers.DateTimeField(required=False)
    include_user_names = _optional_boolean()

    REPEATED = ("run", "key", "session", "source", "user")

    def filter(self, rows: FeedbackQuerySet) -> FeedbackQuerySet:
        """Return the rows that match the filters, newest first."""
        params: dict[str, Any] = self.validated_data
        for name, column in _COLUMN_BY_LIST_FILTER.items():
            if name in params:
                rows = rows.filter(**{f"{column}__in": params[name]})
        for name, column in _COLUMN_BY_PRESENCE_FILTER.items():
            if params.get(name) is not None:
                rows = rows.filter(**{f"{column}__isnull": not params[name]})
        if "level" in params:
            rows = rows.filter(run_id__isnull=params["level"] == "session")
        if "feedback_thread_id" in params:
            rows = rows.filter(is_on_thread=True, thread_key=params["feedback_thread_id"])
        if "comparative_experiment_id" in params:
            rows = rows.filter(comparative_experiment_id=params["comparative_experiment_id"])
        if "min_created_at" in params:
            rows = rows.filter(created_at__gte=as_utc(params["min_created_at"]))
        if "max_created_at" in params:
            rows = rows.filter(created_at__lte=as_utc(params["max_created_at"]))
        return rows.order_by("-created_at", "-pk")


_COLUMN_BY_LIST_FILTER = {
    "run": "run_id",
    "key": "key",
    "session": "project_id",
    "source": "source_type",
    "user": "user_id",
}
_COLUMN_BY_PRESENCE_FILTER = {"has_comment": "comment", "has_score": "score"}


def read_feedback_page(
    request: Request, rows: FeedbackQuerySet, allowed_filters: Collection[str] | None = None
) -> tuple[list[Feedback], bool]:
    """Return the requested page, and whether user names are requested.

    `allowed_filters` restricts the parameters that are read; others are ignored.
    """
    params = query_params(request, FeedbackListSerializer.REPEATED)
    query = FeedbackListSerializer(
        data={
            name: value
            for name, value in params.items()
            if allowed_filters is None or name in allowed_filters
        }
    )
    query.is_valid(raise_exception=True)
    page = list(query.filter(rows)[query.page])
    return page, bool(query.validated_data["include_user_names"])
