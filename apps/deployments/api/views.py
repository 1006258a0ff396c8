"""The control-plane API of the public deployment clients."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.tenancy import get_or_404
from apps.deployments import services
from apps.deployments.api.serializers import (
    ChangesSerializer,
    CreateSerializer,
    DeleteOptionsSerializer,
    DeleteSerializer,
    DeploymentFilterSerializer,
    DeploymentPageSerializer,
    LogQuerySerializer,
    PatchSerializer,
    RevisionFilterSerializer,
    deployment_json,
    log_page,
    revision_json,
)
from apps.deployments.errors import SourceNotSupported
from apps.deployments.models import Deployment, LogKind, LogLine, Revision, Source
from apps.deployments.queries import with_latest_revision
from apps.deployments.querysets import DeploymentQuerySet
from apps.deployments.routes import agent_url
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission

_UNSUPPORTED_SOURCE_FIELDS = frozenset({
    "build_on_push", "integration_id", "listener_config", "listener_id", "resource_spec",
    "template_id",
})  # fmt: skip
_UNSUPPORTED_SOURCES = {
    "internal_source": (
        "Uploads of source archives are not supported yet. Deploy from a Git repository instead:"
        " source github with source_config.repo_url."
    ),
    "internal_docker": (
        "The platform builds agents from source and has no image registry. Deploy from a Git"
        " repository instead: source github with source_config.repo_url."
    ),
    "external_docker": (
        "The platform builds agents from source and runs no images: deploy from a Git repository."
    ),
    "internal_template": "Templates are not supported: deploy from a Git repository.",
}


class ControlPlaneView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.DEPLOYMENTS_READ,
        "*": Permission.DEPLOYMENTS_WRITE,
    }

    def deployments(self) -> DeploymentQuerySet:
        return with_latest_revision(Deployment.objects.for_workspace(self.workspace_id).present())

    def deployment(self, deployment_id: UUID) -> Deployment:
        return get_or_404(self.deployments(), pk=deployment_id)

    def revision(self, deployment_id: UUID, revision_id: UUID) -> Revision:
        present = Deployment.objects.for_workspace(self.workspace_id).present()
        rows = Revision.objects.for_workspace(self.workspace_id).select_related("deployment")
        rows = rows.filter(deployment__in=present.filter(pk=deployment_id))
        return get_or_404(rows, pk=revision_id)

    def delete_deployments(self, deployment_ids: set[UUID], *, with_projects: bool) -> None:
        if with_projects and not self.request.auth.may(Permission.PROJECTS_DELETE):
            raise errors.Forbidden
        services.delete_deployments(
            workspace_id=self.workspace_id,
            deployment_ids=deployment_ids,
            with_projects=with_projects,
        )

    def current_user(self) -> User | None:
        user_id = self.request.auth.user_id
        return User.objects.filter(pk=user_id).first() if user_id else None


class DeploymentsView(ControlPlaneView):
    @extend_schema(parameters=[DeploymentFilterSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        params = request.query_params
        if params.get("agent_id") or params.get("agent_environment"):
            # If ignored, the client would update an arbitrary deployment of the response.
            raise errors.BadRequest("agent_id and agent_environment are not supported.")
        query = validate(DeploymentFilterSerializer, params)
        rows = _filter(self.deployments(), query).newest_first()
        return Response(_page_json(rows, query, deployment_json))

    @extend_schema(request=CreateSerializer, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest) -> Response:
        body = CreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        body_data = body.validated_data
        _check_source(body_data["source"])
        if body_data.get("agent") or not body_data.get("name"):
            raise errors.BadRequest("name is required, and agent is not supported.")
        _reject_unsupported_fields(body_data)
        deployment = services.create_deployment(
            workspace=Workspace.objects.get(pk=self.workspace_id),
            name=body_data["name"],
            variables=body.variables(),
            created_by=self.current_user(),
            **{"repo_url": "", **body.deployment_fields()},
        )
        return Response(deployment_json(self.deployment(deployment.pk)), status=201)

    @extend_schema(parameters=[DeleteSerializer], responses=OpenApiTypes.OBJECT)
    def delete(self, request: ApiRequest) -> Response:
        ids = {"deployment_ids": request.query_params.getlist("deployment_ids")}
        query = validate(DeleteSerializer, {**request.query_params.dict(), **ids})
        self.delete_deployments(
            set(query["deployment_ids"]), with_projects=query["delete_tracing_project"]
        )
        return Response({})


class DeploymentView(ControlPlaneView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID) -> Response:
        return Response(deployment_json(self.deployment(deployment_id)))

    @extend_schema(request=PatchSerializer, responses=OpenApiTypes.OBJECT)
    def patch(self, request: ApiRequest, deployment_id: UUID) -> Response:
        deployment = self.deployment(deployment_id)
        body = PatchSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        body_data = body.validated_data
        _check_source(body_data.get("revision_source"))
        _reject_unsupported_fields(body_data, deployment)
        changes = body.deployment_fields()
        _drop_unchanged_type(changes, deployment)
        if "display_name" in body_data:
            changes["display_name"] = body_data["display_name"]
        services.update_deployment(
            deployment=deployment,
            changes=changes,
            variables=body.variables(),
            changed_by=self.current_user(),
        )
        return Response(deployment_json(self.deployment(deployment_id)))

    @extend_schema(parameters=[DeleteOptionsSerializer], responses={204: None})
    def delete(self, request: ApiRequest, deployment_id: UUID) -> Response:
        query = validate(DeleteOptionsSerializer, request.query_params)
        self.delete_deployments({deployment_id}, with_projects=query["delete_tracing_project"])
        return Response(status=204)


class RevisionsView(ControlPlaneView):
    @extend_schema(parameters=[RevisionFilterSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID) -> Response:
        deployment = self.deployment(deployment_id)
        query = validate(RevisionFilterSerializer, request.query_params)
        rows = Revision.objects.for_workspace(self.workspace_id).filter(deployment=deployment)
        rows = rows.select_related("deployment").newest_first()
        if query.get("status"):
            rows = rows.in_status(query["status"].split(","))
        return Response(_page_json(rows, query, revision_json))

    @extend_schema(request=ChangesSerializer, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        deployment = self.deployment(deployment_id)
        body = ChangesSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        _reject_unsupported_fields(body.validated_data, deployment)
        changes = body.deployment_fields()
        _drop_unchanged_type(changes, deployment)
        revision = services.update_deployment(
            deployment=deployment,
            changes=changes,
            variables=body.variables(),
            new_revision=True,
            changed_by=self.current_user(),
        )
        assert revision is not None  # noqa: S101
        return Response(revision_json(revision), status=201)


class RevisionView(ControlPlaneView):
    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID, revision_id: UUID) -> Response:
        return Response(revision_json(self.revision(deployment_id, revision_id)))


class RedeployView(ControlPlaneView):
    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID, revision_id: UUID) -> Response:
        services.redeploy(revision=self.revision(deployment_id, revision_id))
        return Response(deployment_json(self.deployment(deployment_id)))


class InterruptView(ControlPlaneView):
    """Stops a stuck build, for scripts; no public client calls this route."""

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID, revision_id: UUID) -> Response:
        revision = self.revision(deployment_id, revision_id)
        return Response(revision_json(services.interrupt_revision(revision=revision)))


class StopView(ControlPlaneView):
    """Stops, starts and restarts a deployment, for scripts; no public client calls these routes."""

    operation = staticmethod(services.stop_deployment)

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        self.operation(deployment=self.deployment(deployment_id))
        return Response(deployment_json(self.deployment(deployment_id)))


class StartView(StopView):
    operation = staticmethod(services.start_deployment)


class RestartView(StopView):
    operation = staticmethod(services.restart_deployment)


class BuildLogView(ControlPlaneView):
    kind = LogKind.BUILD
    # The route reads by POST.
    required_permission = {"*": Permission.DEPLOYMENTS_READ}

    @extend_schema(request=LogQuerySerializer, responses=OpenApiTypes.OBJECT)
    def post(
        self, request: ApiRequest, deployment_id: UUID, revision_id: UUID | None = None
    ) -> Response:
        lines = LogLine.objects.for_workspace(self.workspace_id).filter(kind=self.kind)
        if revision_id is None:
            lines = lines.filter(deployment=self.deployment(deployment_id))
        else:
            lines = lines.filter(revision=self.revision(deployment_id, revision_id))
        return Response(log_page(lines, validate(LogQuerySerializer, request.data)))


class ServerLogView(BuildLogView):
    kind = LogKind.SERVER


class UploadView(ControlPlaneView):
    """Rejects uploads of archives and images, which are not supported yet."""

    source = "internal_source"

    @extend_schema(request=None, responses={400: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        self.deployment(deployment_id)
        _check_source(self.source)
        raise AssertionError("a supported source needs its own view")


class PushTokenView(UploadView):
    source = "internal_docker"


class ListenersView(ControlPlaneView):
    """Always empty: agents run on the platform itself, without listeners."""

    @extend_schema(parameters=[DeploymentPageSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        return Response({"resources": [], "offset": 0})


class GitIntegrationsView(ControlPlaneView):
    """Always empty: repositories are given by address, without integrations."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        return Response([])


def _filter(rows: DeploymentQuerySet, query: dict[str, Any]) -> DeploymentQuerySet:
    # A client that sends both accepts a match of either.
    if query.get("name_contains"):
        rows = rows.filter(name__icontains=query["name_contains"])
    elif query.get("name"):
        rows = rows.filter(name=query["name"])
    for field in ("status", "deployment_type"):
        if query.get(field):
            rows = rows.filter(**{field: query[field]})
    if query.get("deployment_ids"):
        rows = rows.filter(pk__in=query["deployment_ids"])
    return rows


def _page_json(rows: Any, query: dict[str, Any], as_json: Any) -> dict[str, Any]:
    """Return a page; `offset` is the start of the next one."""
    begin, end = query["offset"], query["offset"] + query["limit"]
    resources = [as_json(row) for row in rows[begin:end]]
    return {"resources": resources, "offset": begin + len(resources)}


def _reject_unsupported_fields(
    body_data: dict[str, Any], deployment: Deployment | None = None
) -> None:
    """Reject fields that would have no effect; read-only ones may be sent back as they were."""
    source = body_data.get("source_config") or {}
    revision = body_data.get("source_revision_config") or {}
    own_address = agent_url(deployment.slug) if deployment else None
    if source.get("custom_url") and source["custom_url"] != own_address:
        raise errors.BadRequest("source_config.custom_url cannot be chosen. Leave it out.")
    if (branch := source.get("repo_branch")) and branch not in (
        deployment.branch if deployment else None,
        revision.get("repo_ref"),
    ):
        raise errors.BadRequest(
            "source_config.repo_branch is read-only. Set source_revision_config.repo_ref."
        )
    if (commit := revision.get("repo_commit_sha")) and (
        deployment is None or commit != deployment.__dict__["latest_commit_sha"]
    ):
        raise errors.BadRequest(
            "source_revision_config.repo_commit_sha is read-only. Set repo_ref to a branch or tag."
        )
    for name in ("install_command", "build_command"):
        if source.get(name):
            raise errors.BadRequest(f"{name} is for JavaScript projects, which are not supported.")
    for name in _UNSUPPORTED_SOURCE_FIELDS:
        if source.get(name):
            raise errors.BadRequest(f"source_config.{name} is not supported. Leave it out.")
    for name, kind in (
        ("image_uri", "external_docker"),
        ("source_tarball_path", "internal_source"),
    ):
        if revision.get(name):
            _check_source(kind)
    if body_data.get("secret_references"):
        raise errors.BadRequest("secret_references are for Kubernetes; send secrets instead.")


def _drop_unchanged_type(changes: dict[str, Any], deployment: Deployment) -> None:
    """Remove `deployment_type` from the changes; reject another one than the deployment has."""
    kind = changes.pop("deployment_type", deployment.deployment_type)
    if kind != deployment.deployment_type:
        raise errors.BadRequest("deployment_type cannot be changed.")


def _check_source(source: str | None) -> None:
    """Reject a source other than Git, with advice for the user."""
    if source is None or source == Source.GIT:
        return
    raise SourceNotSupported(_UNSUPPORTED_SOURCES.get(source, f"The source {source!r} is unknown."))


_DEPLOYMENT = "v2/deployments/<uuid:deployment_id>"
_REVISION = f"{_DEPLOYMENT}/revisions/<uuid:revision_id>"
_PROJECT = "v1/projects/<uuid:deployment_id>"

routes = [
    path("v2/deployments", DeploymentsView.as_view()),
    path(_DEPLOYMENT, DeploymentView.as_view()),
    path(f"{_DEPLOYMENT}/upload-url", UploadView.as_view()),
    path(f"{_DEPLOYMENT}/push-token", PushTokenView.as_view()),
    path(f"{_DEPLOYMENT}/stop", StopView.as_view()),
    path(f"{_DEPLOYMENT}/start", StartView.as_view()),
    path(f"{_DEPLOYMENT}/restart", RestartView.as_view()),
    path(f"{_DEPLOYMENT}/revisions", RevisionsView.as_view()),
    path(_REVISION, RevisionView.as_view()),
    path(f"{_REVISION}/redeploy", RedeployView.as_view()),
    path(f"{_REVISION}/interrupt", InterruptView.as_view()),
    path(f"{_PROJECT}/deploy_logs", ServerLogView.as_view()),
    path(f"{_PROJECT}/revisions/<uuid:revision_id>/build_logs", BuildLogView.as_view()),
    path(f"{_PROJECT}/revisions/<uuid:revision_id>/deploy_logs", ServerLogView.as_view()),
    path("v2/listeners", ListenersView.as_view()),
    path("v1/integrations/github/install", GitIntegrationsView.as_view()),
]
