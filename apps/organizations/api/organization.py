"""Organizations, their policies and their roles."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.audit.presentation import entry_json
from apps.audit.search import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Search, get_page
from apps.core import errors
from apps.core.api import (
    OrganizationAPIView,
    OrganizationRequest,
    PersonAPIView,
    PersonRequest,
    validate,
)
from apps.core.tenancy import get_or_404
from apps.organizations.api.rendering import organization_json, role_json
from apps.organizations.api.request_helpers import paginated_response
from apps.organizations.errors import SystemRoleImmutable
from apps.organizations.models import Organization, Role, User
from apps.organizations.permissions import (
    DESCRIPTIONS,
    Level,
    OrganizationPermission,
    PersonPermission,
    permission_names,
)
from apps.organizations.roles import SYSTEM_ROLES
from apps.organizations.services import (
    create_organization,
    may_create_organization,
    organizations,
    roles,
)


class AuditLogQuery(serializers.Serializer[None]):
    start_time = serializers.DateTimeField(required=False)
    end_time = serializers.DateTimeField(required=False)
    cursor = serializers.CharField(required=False, max_length=500)
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=MAX_PAGE_SIZE, default=DEFAULT_PAGE_SIZE
    )
    action = serializers.CharField(required=False, max_length=64, default="")
    actor = serializers.CharField(required=False, max_length=254, default="")
    target = serializers.CharField(required=False, max_length=200, default="")
    workspace_id = serializers.UUIDField(required=False)


class AuditLogView(OrganizationAPIView):
    required_permission = OrganizationPermission.AUDIT_READ

    @extend_schema(parameters=[AuditLogQuery], responses=dict)
    def get(self, request: Request) -> Response:
        """List the organization's entries, newest first; `cursor` is null on the last page."""
        params = validate(AuditLogQuery, request.query_params)
        search = Search(
            organization_id=self.organization_id,
            workspace_id=params.get("workspace_id"),
            action=params["action"],
            actor=params["actor"],
            target=params["target"],
            begin=params.get("start_time"),
            end=params.get("end_time"),
        )
        entries, cursor = get_page(search, cursor=params.get("cursor"), limit=params["limit"])
        return Response({"items": [entry_json(entry) for entry in entries], "cursor": cursor})


class NewOrganizationSerializer(serializers.Serializer[Any]):
    display_name = serializers.CharField(max_length=100)
    is_personal = serializers.BooleanField(default=False)


class OrganizationChangesSerializer(serializers.Serializer[Any]):
    """Changed fields; absent ones keep their value."""

    display_name = serializers.CharField(max_length=100, required=False)
    public_sharing_disabled = serializers.BooleanField(required=False)
    pat_creation_disabled = serializers.BooleanField(required=False)
    max_key_days = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=36_500
    )
    unshare_all = serializers.BooleanField(default=False)


_FIELDS = {
    "display_name": "name",
    "public_sharing_disabled": "public_sharing_disabled",
    "pat_creation_disabled": "personal_keys_disabled",
    "max_key_days": "max_key_days",
}


class OrganizationsView(PersonAPIView):
    required_permission = {"GET": PersonPermission.ME_READ, "*": PersonPermission.ME_WRITE}

    @extend_schema(responses=dict)
    def get(self, request: PersonRequest) -> Response:
        """List the user's organizations; with a key, only the key's organization."""
        rows = Organization.objects.filter(memberships__user_id=request.auth.user_id)
        if request.auth.organization_id is not None:
            rows = rows.filter(pk=request.auth.organization_id)
        return paginated_response(request, rows.order_by("name"), organization_json)

    @extend_schema(request=NewOrganizationSerializer, responses=dict)
    def post(self, request: PersonRequest) -> Response:
        """Create an organization owned by the user."""
        if request.auth.key_id is not None:
            raise errors.Forbidden("API keys cannot create organizations. Sign in instead.")
        user = User.objects.get(pk=request.auth.user_id)
        if not may_create_organization(user):
            raise errors.Forbidden("Only operators create organizations on this installation.")
        body = validate(NewOrganizationSerializer, request.data)
        setup = create_organization(
            name=body["display_name"], owner=user, is_personal=body["is_personal"]
        )
        return Response(organization_json(setup.organization))


class OrganizationView(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.ORGANIZATION_MANAGE,
    }

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        return Response(self._json(Organization.objects.get(pk=self.organization_id)))

    @extend_schema(request=OrganizationChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest) -> Response:
        body = validate(OrganizationChangesSerializer, request.data)
        unshare_all = body.pop("unshare_all")
        changed = organizations.update_organization(
            organization_id=self.organization_id,
            changes={_FIELDS[name]: value for name, value in body.items()},
            unshare_all=unshare_all,
        )
        return Response(self._json(changed))

    def _json(self, organization: Organization) -> dict[str, Any]:
        return organization_json(organization) | {
            "permissions": sorted(self.request.auth.permissions)
        }


class PermissionsView(OrganizationAPIView):
    required_permission = OrganizationPermission.ORGANIZATION_READ

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        """List the permissions that roles can contain."""
        return Response(
            [
                {"name": name, "description": DESCRIPTIONS[name], "access_scope": str(level)}
                for level in Level
                for name in permission_names(level)
            ]
        )


class RoleSerializer(serializers.Serializer[Any]):
    display_name = serializers.CharField(max_length=60)
    description = serializers.CharField(max_length=200, default="", allow_blank=True)
    permissions = serializers.ListField(child=serializers.CharField(max_length=40), max_length=200)
    access_scope = serializers.ChoiceField(
        choices=[str(level) for level in Level], default=str(Level.WORKSPACE)
    )


class RoleChangesSerializer(serializers.Serializer[Any]):
    display_name = serializers.CharField(max_length=60, required=False)
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    permissions = serializers.ListField(
        child=serializers.CharField(max_length=40), max_length=200, required=False
    )


class RolesView(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.ORGANIZATION_READ,
        "*": OrganizationPermission.ROLES_MANAGE,
    }

    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        """List the system roles and the custom roles."""
        return Response([role_json(role) for role in roles.list_roles(self.organization_id)])

    @extend_schema(request=RoleSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        body = validate(RoleSerializer, request.data)
        role = roles.create_role(
            organization_id=self.organization_id,
            level=Level(body["access_scope"]),
            display_name=body["display_name"],
            description=body["description"],
            permissions=body["permissions"],
            by=request.auth,
        )
        return Response(role_json(role))


class RoleView(OrganizationAPIView):
    required_permission = OrganizationPermission.ROLES_MANAGE

    @extend_schema(request=RoleChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, role_id: UUID) -> Response:
        role = self._role(role_id)
        changes = validate(RoleChangesSerializer, request.data)
        return Response(role_json(roles.update_role(role=role, changes=changes, by=request.auth)))

    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, role_id: UUID) -> Response:
        roles.delete_role(role=self._role(role_id))
        return Response(status=204)

    def _role(self, role_id: UUID) -> Role:
        if any(role.id == role_id for role in SYSTEM_ROLES):
            raise SystemRoleImmutable
        return get_or_404(Role.objects.filter(organization_id=self.organization_id), pk=role_id)


class PersonView(PersonAPIView):
    required_permission = PersonPermission.ME_READ

    @extend_schema(responses=dict)
    def get(self, request: PersonRequest) -> Response:
        return Response({"ls_user_id": request.auth.user_id})


routes = [
    path("orgs", OrganizationsView.as_view(), name="organizations"),
    path("orgs/current", OrganizationView.as_view(), name="organization"),
    path("orgs/current/info", OrganizationView.as_view(), name="organization-info"),
    path("orgs/permissions", PermissionsView.as_view(), name="permissions"),
    path("orgs/current/roles", RolesView.as_view(), name="roles"),
    path("orgs/current/roles/<uuid:role_id>", RoleView.as_view(), name="role"),
    path("me/ls_user_id", PersonView.as_view(), name="me"),
    path("audit-logs", AuditLogView.as_view(), name="audit-logs"),
]
