"""The control plane, as public deployment clients speak it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from apps.core import errors
from apps.core.api import ApiRequest, WorkspaceAPIView
from apps.core.tenancy import get_or_404
from apps.deployments import services
from apps.deployments.api import sources
from apps.deployments.api.log_pages import log_page
from apps.deployments.api.serializers import (
    ChangesSerializer,
    CreateSerializer,
    DeleteSerializer,
    DeploymentFilterSerializer,
    LogQuerySerializer,
    PageSerializer,
    PatchSerializer,
    RevisionFilterSerializer,
    deployment_json,
    revision_json,
)
from apps.deployments.models import Deployment, LogKind, LogLine, Revision
from apps.deployments.queries import with_latest
from apps.deployments.querysets import DeploymentQuerySet
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission


class ControlPlaneView(WorkspaceAPIView):
    required_permission = {
        "GET": Permission.DEPLOYMENTS_READ,
        "*": Permission.DEPLOYMENTS_WRITE,
    }

    def deployments(self) -> DeploymentQuerySet:
        return with_latest(Deployment.objects.for_workspace(self.workspace_id).present())

    def deployment(self, deployment_id: UUID) -> Deployment:
        return get_or_404(self.deployments(), pk=deployment_id)

    def revision(self, deployment_id: UUID, revision_id: UUID) -> Revision:
        present = Deployment.objects.for_workspace(self.workspace_id).present()
        rows = Revision.objects.for_workspace(self.workspace_id).select_related("deployment")
        rows = rows.filter(deployment__in=present.filter(pk=deployment_id))
        return get_or_404(rows, pk=revision_id)

    def person(self) -> User | None:
        user_id = self.request.auth.user_id
        return User.objects.filter(pk=user_id).first() if user_id else None


class DeploymentsView(ControlPlaneView):
    @extend_schema(parameters=[DeploymentFilterSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        asked = request.query_params
        if asked.get("agent_id") or asked.get("agent_environment"):
            # Ignored, the client would update whatever deployment came back.
            raise errors.BadRequest("Deployments have no agents and environments here.")
        query = DeploymentFilterSerializer(data=asked)
        query.is_valid(raise_exception=True)
        rows = _filtered(self.deployments(), query.validated_data).newest_first()
        return Response(_page(rows, query.validated_data, deployment_json))

    @extend_schema(request=CreateSerializer, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest) -> Response:
        body = CreateSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        given = body.validated_data
        sources.check(given["source"])
        if given.get("agent") or not given.get("name"):
            raise errors.BadRequest(
                "A deployment needs a name; agents and environments are not known here."
            )
        _refuse_commands(given)
        deployment = services.create_deployment(
            workspace=Workspace.objects.get(pk=self.workspace_id),
            name=given["name"],
            variables=body.variables(),
            created_by=self.person(),
            **{"repo_url": "", **body.fields_of_deployment()},
        )
        return Response(deployment_json(self.deployment(deployment.pk)), status=201)

    @extend_schema(parameters=[DeleteSerializer], responses=OpenApiTypes.OBJECT)
    def delete(self, request: ApiRequest) -> Response:
        query = DeleteSerializer(
            data={"deployment_ids": request.query_params.getlist("deployment_ids")}
        )
        query.is_valid(raise_exception=True)
        services.delete_deployments(
            workspace_id=self.workspace_id,
            deployment_ids=set(query.validated_data["deployment_ids"]),
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
        given = body.validated_data
        sources.check(given.get("revision_source"))
        _refuse_commands(given)
        changes = body.fields_of_deployment()
        kind = changes.pop("deployment_type", deployment.deployment_type)
        if kind != deployment.deployment_type:
            raise errors.BadRequest("The type of a deployment never changes.")
        if "display_name" in given:
            changes["display_name"] = given["display_name"]
        services.update_deployment(
            deployment=deployment,
            changes=changes,
            variables=body.variables(),
            changed_by=self.person(),
        )
        return Response(deployment_json(self.deployment(deployment_id)))

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, deployment_id: UUID) -> Response:
        if request.query_params.get("delete_tracing_project", "false").lower() == "true":
            raise errors.BadRequest(
                "The tracing project of a deployment is not deleted with it yet: leave out"
                " delete_tracing_project."
            )
        services.delete_deployments(workspace_id=self.workspace_id, deployment_ids={deployment_id})
        return Response(status=204)


class RevisionsView(ControlPlaneView):
    @extend_schema(parameters=[RevisionFilterSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest, deployment_id: UUID) -> Response:
        deployment = self.deployment(deployment_id)
        query = RevisionFilterSerializer(data=request.query_params)
        query.is_valid(raise_exception=True)
        rows = Revision.objects.for_workspace(self.workspace_id).filter(deployment=deployment)
        rows = rows.select_related("deployment").newest_first()
        if query.validated_data.get("status"):
            rows = rows.in_status(query.validated_data["status"].split(","))
        return Response(_page(rows, query.validated_data, revision_json))

    @extend_schema(request=ChangesSerializer, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        deployment = self.deployment(deployment_id)
        body = ChangesSerializer(data=request.data)
        body.is_valid(raise_exception=True)
        _refuse_commands(body.validated_data)
        changes = body.fields_of_deployment()
        changes.pop("deployment_type", None)
        revision = services.update_deployment(
            deployment=deployment,
            changes=changes,
            variables=body.variables(),
            new_revision=True,
            changed_by=self.person(),
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
    """Not in any public client: for scripts that stop a stuck build."""

    @extend_schema(request=None, responses=OpenApiTypes.OBJECT)
    def post(self, request: ApiRequest, deployment_id: UUID, revision_id: UUID) -> Response:
        revision = self.revision(deployment_id, revision_id)
        return Response(revision_json(services.interrupt_revision(revision=revision)))


class BuildLogView(ControlPlaneView):
    kind = LogKind.BUILD
    # Reading by POST.
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
        query = LogQuerySerializer(data=request.data)
        query.is_valid(raise_exception=True)
        return Response(log_page(lines, query.validated_data))


class ServerLogView(BuildLogView):
    kind = LogKind.SERVER


class UploadView(ControlPlaneView):
    """The place of uploaded archives and images, until they are offered."""

    source = "internal_source"

    @extend_schema(request=None, responses={400: OpenApiTypes.OBJECT})
    def post(self, request: ApiRequest, deployment_id: UUID) -> Response:
        self.deployment(deployment_id)
        sources.check(self.source)
        raise AssertionError("a source that is offered has a view of its own")


class PushTokenView(UploadView):
    source = "internal_docker"


class ListenersView(ControlPlaneView):
    """Agents run on this platform itself, so there is never a listener."""

    @extend_schema(parameters=[PageSerializer], responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        return Response({"resources": [], "offset": 0})


class GitIntegrationsView(ControlPlaneView):
    """Repositories are named by their address; no integration is ever installed."""

    @extend_schema(responses=OpenApiTypes.OBJECT)
    def get(self, request: ApiRequest) -> Response:
        return Response([])


def _filtered(rows: DeploymentQuerySet, query: dict[str, Any]) -> DeploymentQuerySet:
    # `name` and `name_contains` are sent together by a client that wants either.
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


def _page(rows: Any, query: dict[str, Any], as_json: Any) -> dict[str, Any]:
    """`offset` is where the next page begins."""
    begin, end = query["offset"], query["offset"] + query["limit"]
    found = [as_json(row) for row in rows[begin:end]]
    return {"resources": found, "offset": begin + len(found)}


def _refuse_commands(given: dict[str, Any]) -> None:
    """What would change the build if it were honoured is refused, not ignored."""
    source = given.get("source_config") or {}
    revision = given.get("source_revision_config") or {}
    for name in ("install_command", "build_command"):
        if source.get(name):
            raise errors.BadRequest(f"{name} is for JavaScript projects, which are not built yet.")
    for name, kind in (
        ("image_uri", "external_docker"),
        ("source_tarball_path", "internal_source"),
    ):
        if revision.get(name):
            sources.check(kind)
    if given.get("secret_references"):
        raise errors.BadRequest("secret_references are for Kubernetes; send secrets instead.")
