"""The query strings of the routes of feedback, checked."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from apps.feedback.models import Feedback
from apps.feedback.querysets import FeedbackQuerySet
from apps.tracing.api.rendering import as_utc

LARGEST_PAGE = 100
MOST_NAMED = 1000
WITH_COMMAS = ("run", "session", "user")


def query_params(request: Request, repeated: Collection[str] = ()) -> dict[str, Any]:
    """The query string, lists where lists are meant; those of ids may have commas too."""
    given: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        if name in WITH_COMMAS and name in repeated:
            given[name] = [part for value in values for part in value.split(",") if part]
        elif name in repeated:
            given[name] = values
        elif values[-1] != "":
            given[name] = values[-1]
    return given


class PageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=LARGEST_PAGE, default=LARGEST_PAGE
    )
    offset = serializers.IntegerField(required=False, min_value=0, max_value=2**31 - 1, default=0)

    @property
    def page(self) -> slice:
        asked = self.validated_data
        return slice(asked["offset"], asked["offset"] + asked["limit"])


class Many(serializers.ListField):
    def __init__(self, child: serializers.Field[Any, Any, Any, Any]) -> None:
        super().__init__(child=child, required=False, max_length=MOST_NAMED)


class SourceField(serializers.CharField):
    """A kind of source. Of its enumeration the Python client sends the name, not the value."""

    def to_internal_value(self, data: Any) -> str:
        text: str = super().to_internal_value(data)
        name = text.removeprefix("FeedbackSourceType.")
        return text if name == text else name.lower()


def _flag() -> serializers.BooleanField:
    return serializers.BooleanField(required=False, allow_null=True, default=None)


class FeedbackListSerializer(PageSerializer):
    """Which feedback; what is absent does not limit, everything given must hold."""

    run = Many(serializers.UUIDField())
    key = Many(serializers.CharField())
    session = Many(serializers.UUIDField())
    source = Many(SourceField())  # type: ignore[assignment]
    user = Many(serializers.UUIDField())
    level = serializers.ChoiceField(choices=["run", "session"], required=False)
    has_comment = _flag()
    has_score = _flag()
    feedback_thread_id = serializers.CharField(required=False)
    comparative_experiment_id = serializers.UUIDField(required=False)
    min_created_at = serializers.DateTimeField(required=False)
    max_created_at = serializers.DateTimeField(required=False)
    include_user_names = _flag()

    REPEATED = ("run", "key", "session", "source", "user")

    def matching(self, rows: FeedbackQuerySet) -> FeedbackQuerySet:
        """Those of the rows that are asked for, newest first."""
        asked: dict[str, Any] = self.validated_data
        for name, column in _IN.items():
            if name in asked:
                rows = rows.filter(**{f"{column}__in": asked[name]})
        for name, column in _PRESENT.items():
            if asked.get(name) is not None:
                rows = rows.filter(**{f"{column}__isnull": not asked[name]})
        if "level" in asked:
            rows = rows.filter(run_id__isnull=asked["level"] == "session")
        if "feedback_thread_id" in asked:
            rows = rows.filter(is_on_thread=True, thread_key=asked["feedback_thread_id"])
        if "comparative_experiment_id" in asked:
            rows = rows.filter(comparative_experiment_id=asked["comparative_experiment_id"])
        if "min_created_at" in asked:
            rows = rows.filter(created_at__gte=as_utc(asked["min_created_at"]))
        if "max_created_at" in asked:
            rows = rows.filter(created_at__lte=as_utc(asked["max_created_at"]))
        return rows.order_by("-created_at", "-pk")


_IN = {
    "run": "run_id",
    "key": "key",
    "session": "project_id",
    "source": "source_type",
    "user": "user_id",
}
_PRESENT = {"has_comment": "comment", "has_score": "score"}


def page_of_feedback(
    request: Request, rows: FeedbackQuerySet, only: Collection[str] | None = None
) -> tuple[list[Feedback], bool]:
    """The page that the query string asks for, and whether it wants people's names.

    With `only`, other parameters than these are as if they had not been sent.
    """
    given = query_params(request, FeedbackListSerializer.REPEATED)
    query = FeedbackListSerializer(
        data={name: value for name, value in given.items() if only is None or name in only}
    )
    query.is_valid(raise_exception=True)
    page = list(query.matching(rows)[query.page])
    return page, bool(query.validated_data["include_user_names"])
