"""Bodies and query parameters of the routes of repositories and commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from rest_framework import serializers
from rest_framework.request import Request

from apps.core.api import validate
from apps.organizations.services.tags import MAX_TAGS_PER_REQUEST
from apps.prompts import errors
from apps.prompts.models import RepositoryType
from apps.prompts.services.repositories import HANDLE_PATTERN, MAX_HANDLE_LENGTH

MAX_PAGE_SIZE = 100
MAX_README_LENGTH = 100_000
MAX_LABELS = 50
SORT_FIELDS = ("num_likes", "num_downloads", "num_views", "updated_at", "relevance")
REPOSITORY_TYPES = ("prompt", "file", "agent", "skill")
"""The types of the public API; `file` repositories do not exist on this server."""


def query_params(
    serializer_class: type[serializers.Serializer[Any]], request: Request
) -> dict[str, Any]:
    """Validate the query string. Lists repeat their parameter; an empty value means absent."""
    lists = {
        name
        for name, field in serializer_class().fields.items()
        if isinstance(field, serializers.ListField)
    }
    fields: dict[str, Any] = {}
    for name, values in request.query_params.lists():
        name_in_query = name.removesuffix("[]")
        if name_in_query in lists:
            fields[name_in_query] = [value for value in values if value]
        elif values[-1] != "":
            fields[name] = values[-1]
    return validate(serializer_class, fields)


class PageSerializer(serializers.Serializer[Any]):
    limit = serializers.IntegerField(default=20, min_value=1, max_value=MAX_PAGE_SIZE)
    offset = serializers.IntegerField(default=0, min_value=0, max_value=10_000_000)


class TagHistorySerializer(PageSerializer):
    limit = serializers.IntegerField(default=50, min_value=1, max_value=MAX_PAGE_SIZE)


class LabelsField(serializers.ListField):
    def __init__(self, **options: Any) -> None:
        super().__init__(
            child=serializers.CharField(max_length=100), max_length=MAX_LABELS, **options
        )


class RepositoryFilterSerializer(PageSerializer):
    """Filters of `GET /repos`, combined with AND."""

    is_public = serializers.BooleanField(required=False, allow_null=True, default=None)
    is_archived = serializers.ChoiceField(choices=["true", "false", "allow"], default="false")
    query = serializers.CharField(required=False, max_length=500)
    match_prefix = serializers.BooleanField(required=False, default=False)
    tags = LabelsField(required=False, default=list)
    tag_value_id = serializers.ListField(
        child=serializers.UUIDField(), required=False, default=list, max_length=MAX_TAGS_PER_REQUEST
    )
    repo_type = serializers.ChoiceField(choices=REPOSITORY_TYPES, required=False)
    repo_types = serializers.ListField(
        child=serializers.ChoiceField(choices=REPOSITORY_TYPES), required=False
    )
    has_commits = serializers.BooleanField(required=False, allow_null=True, default=None)
    tenant_handle = serializers.CharField(required=False, max_length=40)
    tenant_id = serializers.UUIDField(required=False)
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=["internal", "external"], required=False
    )
    upstream_repo_owner = serializers.CharField(required=False, max_length=100)
    upstream_repo_handle = serializers.CharField(required=False, max_length=100)
    sort_field = serializers.ChoiceField(choices=SORT_FIELDS, default="updated_at")
    sort_direction = serializers.ChoiceField(choices=["asc", "desc"], default="desc")
    with_latest_manifest = serializers.BooleanField(required=False, default=False)
    include_owners = serializers.BooleanField(required=False, default=False)

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        # The Python client sends the name of the enum member.
        sort_field = str(data.get("sort_field", "updated_at")).removeprefix("PromptSortField.")
        archived = str(data.get("is_archived", "false")).lower()
        fields: dict[str, Any] = super().to_internal_value(
            {**data, "sort_field": sort_field, "is_archived": archived}
        )
        return fields


class RepositoryChangesSerializer(serializers.Serializer[Any]):
    description = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, max_length=1000
    )
    readme = serializers.CharField(
        required=False,
        allow_blank=True,
        allow_null=True,
        max_length=MAX_README_LENGTH,
        trim_whitespace=False,
    )
    tags = LabelsField(required=False, allow_null=True)
    is_public = serializers.BooleanField(required=False, allow_null=True)
    is_archived = serializers.BooleanField(required=False, allow_null=True)
    restricted_mode = serializers.BooleanField(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.pop("restricted_mode", None):
            raise errors.UnsupportedField("restricted_mode", "true")
        return {name: value for name, value in attrs.items() if value is not None}


class RepositorySerializer(RepositoryChangesSerializer):
    repo_handle = serializers.RegexField(
        HANDLE_PATTERN,
        max_length=MAX_HANDLE_LENGTH,
        error_messages={
            "invalid": "Must start with a lower-case letter and contain only lower-case letters,"
            " digits, `-` and `_`."
        },
    )
    is_public = serializers.BooleanField()
    is_archived = None  # type: ignore[assignment]
    repo_type = serializers.ChoiceField(choices=REPOSITORY_TYPES, default=RepositoryType.PROMPT)
    source = serializers.ChoiceField(  # type: ignore[assignment]
        choices=["internal", "external"], required=False, allow_null=True
    )
    tag_value_ids = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        allow_null=True,
        max_length=MAX_TAGS_PER_REQUEST,
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.pop("source", None) == "external":
            raise errors.UnsupportedField("source", "external")
        if attrs["repo_type"] == "file":
            raise errors.UnsupportedField("repo_type", "file")
        return super().validate(attrs)


class LikeSerializer(serializers.Serializer[Any]):
    like = serializers.BooleanField()


class CommitTagSerializer(serializers.Serializer[Any]):
    tag_name = serializers.CharField(max_length=100)
    commit_id = serializers.UUIDField()


class MoveTagSerializer(serializers.Serializer[Any]):
    commit_id = serializers.UUIDField()


class CommitPageSerializer(PageSerializer):
    include_stats = serializers.BooleanField(required=False, default=True)
    include_model = serializers.BooleanField(required=False, default=False)
    tag = serializers.CharField(required=False, max_length=100)


class CommitSerializer(serializers.Serializer[Any]):
    manifest = serializers.JSONField()
    parent_commit = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=64
    )
    description = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, max_length=1000
    )
    skip_webhooks = serializers.JSONField(required=False, allow_null=True)

    def validate_skip_webhooks(self, value: Any) -> bool | list[UUID]:
        """Return True for all webhooks, or the ids of those that are skipped."""
        if value is None or isinstance(value, bool):
            return bool(value)
        field = serializers.ListField(child=serializers.UUIDField(), max_length=100)
        ids: list[UUID] = field.run_validation(value)
        return ids


class CommitQuerySerializer(serializers.Serializer[Any]):
    include_model = serializers.BooleanField(required=False, default=False)
    include = serializers.CharField(required=False, default="")
    get_examples = serializers.BooleanField(required=False, default=False)
    is_view = serializers.BooleanField(required=False, default=False)

    def validate_include(self, value: str) -> set[str]:
        names = {name.strip() for name in value.split(",") if name.strip()}
        if unknown := names - {"model", "is_draft"}:
            raise serializers.ValidationError(f"Unknown field: {min(unknown):.50}.")
        return names


class DiffQuerySerializer(serializers.Serializer[Any]):
    base = serializers.CharField(required=False, max_length=100)


class _SelectorSerializer(serializers.Serializer[Any]):
    type = serializers.ChoiceField(choices=["LATEST", "COMMIT"])
    commit_id = serializers.UUIDField(required=False)

    def validate(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        if (attrs["type"] == "COMMIT") != ("commit_id" in attrs):
            raise serializers.ValidationError("`commit_id` is for the type COMMIT, which needs it.")
        return {name: str(value) for name, value in attrs.items()}


class EntrySerializer(serializers.Serializer[Any]):
    """A file, or a link to another directory."""

    type = serializers.ChoiceField(choices=["file", "agent", "skill"])
    content = serializers.CharField(required=False, allow_blank=True, trim_whitespace=False)
    repo_handle = serializers.CharField(required=False, max_length=100)
    owner = serializers.CharField(required=False, allow_null=True, max_length=40)
    commit_id = serializers.UUIDField(required=False, allow_null=True)
    commit_hash = serializers.CharField(required=False, allow_null=True, max_length=64)
    selector = _SelectorSerializer(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        needed = "content" if attrs["type"] == "file" else "repo_handle"
        if needed not in attrs:
            raise serializers.ValidationError({needed: "This field is required."})
        if attrs["type"] == "file" and set(attrs) - {"type", "content"}:
            raise serializers.ValidationError("A file has only a `content`.")
        if attrs["type"] != "file" and "content" in attrs:
            raise serializers.ValidationError("A link has no `content`.")
        return attrs


class DirectoryCommitSerializer(serializers.Serializer[Any]):
    files = serializers.DictField(child=EntrySerializer(allow_null=True), required=False)
    parent_commit = serializers.CharField(
        required=False, allow_null=True, min_length=8, max_length=64
    )
    skip_webhooks = serializers.BooleanField(required=False, allow_null=True)


class DirectoryQuerySerializer(serializers.Serializer[Any]):
    commit = serializers.CharField(required=False, max_length=100, default="latest")
    repo_type = serializers.ChoiceField(choices=["agent", "skill"], required=False)
