"""Request and response formats of deployments and revisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from apps.core import errors
from apps.deployments.models import Deployment, LogLine, Revision
from apps.deployments.querysets import LogLineQuerySet
from apps.deployments.routes import agent_url
from apps.deployments.services.lifecycle import DEPLOYMENT_TYPES

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
"""From the least to the most severe."""


def deployment_json(deployment: Deployment) -> dict[str, Any]:
    """Return the JSON of a deployment annotated by `queries.with_latest_revision`.

    Values of variables are never returned. `secrets` is null, which clients treat as unknown; an
    empty list would look like a change.
    """
    latest = deployment.__dict__
    return {
        "id": deployment.pk,
        "tenant_id": deployment.workspace_id,
        "name": deployment.name,
        "display_name": deployment.display_name or None,
        "source": deployment.source,
        "source_config": _source_config(deployment),
        "source_revision_config": _source_revision_config(
            ref=latest["latest_ref"],
            config_path=latest["latest_config_path"] or deployment.config_path,
            commit_sha=latest["latest_commit_sha"],
        ),
        "secrets": None,
        "secret_references": None,
        "status": deployment.status,
        "latest_revision_id": latest["latest_revision_id"],
        "active_revision_id": deployment.active_revision_id,
        "image_version": None,
        "agent": None,
        "is_preview": False,
        "created_at": deployment.created_at,
        "updated_at": deployment.updated_at,
    }


def revision_json(revision: Revision) -> dict[str, Any]:
    """Return the JSON of a revision; its deployment must be loaded."""
    return {
        "id": revision.pk,
        "status": revision.status,
        "source": revision.source,
        "source_config": _source_config(revision.deployment),
        "source_revision_config": _source_revision_config(
            ref=revision.ref, config_path=revision.config_path, commit_sha=revision.commit_sha
        ),
        "created_at": revision.created_at,
        "updated_at": revision.updated_at,
    }


def _source_revision_config(
    *, ref: str | None, config_path: str, commit_sha: str | None
) -> dict[str, Any]:
    return {
        "repo_ref": ref or None,
        "langgraph_config_path": config_path,
        "image_uri": None,
        "source_tarball_path": None,
        "repo_commit_sha": commit_sha or None,
    }


def _source_config(deployment: Deployment) -> dict[str, Any]:
    is_served = deployment.active_revision_id is not None
    return {
        "integration_id": None,
        "repo_url": deployment.repo_url,
        "repo_branch": deployment.branch or None,
        "deployment_type": deployment.deployment_type,
        "build_on_push": deployment.build_on_push,
        "custom_url": agent_url(deployment.slug) if is_served else None,
        "resource_spec": deployment.resource_spec,
        "listener_id": None,
        "listener_config": None,
        "install_command": None,
        "build_command": None,
        "template_id": None,
    }


class StrictSerializer(serializers.Serializer[Any]):
    """Rejects unknown fields by name, which would have no effect; null counts as absent."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            unknown = [
                str(name)
                for name, value in data.items()
                if name not in self.fields and value is not None
            ]
            if unknown:
                raise serializers.ValidationError(
                    {f"{name:.100}": [_unknown_field_message(name)] for name in unknown}
                )
        return super().to_internal_value(data)


def _unknown_field_message(name: str) -> str:
    for section, serializer in (
        ("source_config", SourceConfigSerializer),
        ("source_revision_config", RevisionConfigSerializer),
    ):
        if name in serializer().fields:
            return f"The field is unknown here; it belongs in {section}."
    return "The field is unknown."


class SecretSerializer(StrictSerializer):
    name = serializers.CharField(max_length=255)
    value = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=262_144)


class SourceConfigSerializer(StrictSerializer):
    integration_id = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    repo_branch = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    repo_url = serializers.CharField(max_length=2000, required=False, allow_null=True)
    deployment_type = serializers.ChoiceField(
        sorted(DEPLOYMENT_TYPES), required=False, allow_null=True
    )
    build_on_push = serializers.BooleanField(required=False, allow_null=True)
    resource_spec = serializers.DictField(required=False, allow_null=True)
    custom_url = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    listener_id = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    listener_config = serializers.DictField(required=False, allow_null=True)
    template_id = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    install_command = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    build_command = serializers.CharField(required=False, allow_null=True, allow_blank=True)


class RevisionConfigSerializer(StrictSerializer):
    repo_ref = serializers.CharField(
        max_length=255, required=False, allow_null=True, allow_blank=True
    )
    langgraph_config_path = serializers.CharField(max_length=500, required=False, allow_null=True)
    image_uri = serializers.CharField(required=False, allow_null=True)
    source_tarball_path = serializers.CharField(required=False, allow_null=True)
    repo_commit_sha = serializers.CharField(required=False, allow_null=True, allow_blank=True)


class ChangesSerializer(StrictSerializer):
    """The fields shared by creating and patching a deployment and creating a revision."""

    source_config = SourceConfigSerializer(required=False, allow_null=True)
    source_revision_config = RevisionConfigSerializer(required=False, allow_null=True)
    secrets = SecretSerializer(many=True, required=False, allow_null=True)
    secret_references = serializers.ListField(required=False, allow_null=True)

    def deployment_fields(self) -> dict[str, Any]:
        """Return the deployment fields in the body; null counts as absent."""
        source = self.validated_data.get("source_config") or {}
        revision = self.validated_data.get("source_revision_config") or {}
        fields = {
            "repo_url": source.get("repo_url"),
            "deployment_type": source.get("deployment_type"),
            "build_on_push": source.get("build_on_push"),
            "resource_spec": source.get("resource_spec"),
            "branch": revision.get("repo_ref"),
            "config_path": revision.get("langgraph_config_path"),
        }
        return {name: value for name, value in fields.items() if value is not None}

    def variables(self) -> dict[str, str] | None:
        """Return the variables in the body, or None."""
        secrets = self.validated_data.get("secrets")
        return {entry["name"]: entry["value"] for entry in secrets} if secrets else None


class CreateSerializer(ChangesSerializer):
    name = serializers.CharField(max_length=63, required=False)
    source = serializers.CharField()  # type: ignore[assignment]  # shadows an attribute of DRF
    agent = serializers.DictField(required=False, allow_null=True)


class PatchSerializer(ChangesSerializer):
    display_name = serializers.CharField(max_length=200, required=False, min_length=1)
    revision_source = serializers.CharField(required=False, allow_null=True)


class DeploymentPageSerializer(StrictSerializer):
    limit = serializers.IntegerField(min_value=1, max_value=100, default=20)
    offset = serializers.IntegerField(min_value=0, default=0)


class DeploymentFilterSerializer(DeploymentPageSerializer):
    name = serializers.CharField(required=False, allow_blank=True)
    name_contains = serializers.CharField(required=False, allow_blank=True)
    status = serializers.CharField(required=False, allow_blank=True)
    deployment_type = serializers.CharField(required=False, allow_blank=True)
    deployment_ids = serializers.ListField(child=serializers.UUIDField(), required=False)


class RevisionFilterSerializer(DeploymentPageSerializer):
    status = serializers.CharField(required=False, allow_blank=True)


class DeleteOptionsSerializer(StrictSerializer):
    delete_tracing_project = serializers.BooleanField(default=False)


class DeleteSerializer(DeleteOptionsSerializer):
    deployment_ids = serializers.ListField(
        child=serializers.UUIDField(), allow_empty=False, max_length=100
    )


class LogQuerySerializer(StrictSerializer):
    limit = serializers.IntegerField(min_value=1, max_value=1000, default=100)
    order = serializers.ChoiceField(["asc", "desc"], default="asc")
    offset = serializers.CharField(required=False, allow_null=True)
    level = serializers.ChoiceField(LOG_LEVELS, required=False, allow_null=True)
    query = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    start_time = serializers.DateTimeField(required=False, allow_null=True)
    end_time = serializers.DateTimeField(required=False, allow_null=True)


def log_page(lines: LogLineQuerySet, query: dict[str, Any]) -> dict[str, Any]:
    """Return one page; `next_offset` is valid as an offset even after an empty page.

    The offset is the id of the last line: ids order lines within a millisecond, so that no line
    repeats.
    """
    ascending = query["order"] == "asc"
    offset = _parse_offset(query.get("offset"))
    if query.get("level"):
        lines = lines.filter(level__in=LOG_LEVELS[LOG_LEVELS.index(query["level"]) :])
    if query.get("query"):
        lines = lines.filter(message__icontains=query["query"])
    if query.get("start_time"):
        lines = lines.filter(created_at__gte=query["start_time"])
    if query.get("end_time"):
        lines = lines.filter(created_at__lte=query["end_time"])
    if offset is not None:
        lines = lines.filter(pk__gt=offset) if ascending else lines.filter(pk__lt=offset)
    page = list(lines.order_by("pk" if ascending else "-pk")[: query["limit"]])
    # Descending, an empty page is the end: no line has an id below 1.
    at_end = (offset or 0) if ascending else 0
    return {
        "logs": [_line_json(line) for line in page],
        "next_offset": str(page[-1].pk if page else at_end),
    }


def _parse_offset(text: str | None) -> int | None:
    if text in (None, ""):
        return None
    if not text.isdecimal() or len(text) > 18:
        raise errors.Invalid("offset must be a next_offset of an earlier response.")
    return int(text)


def _line_json(line: LogLine) -> dict[str, Any]:
    return {
        "id": str(line.pk),
        "timestamp": int(line.created_at.timestamp() * 1000),
        "level": line.level,
        "message": line.message,
    }
