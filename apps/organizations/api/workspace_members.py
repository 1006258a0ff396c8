"""Workspace members, and invitations to the workspace."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.core import errors
from apps.core.api import ApiRequest, WorkspaceAPIView, validate
from apps.core.callers import OrganizationCaller
from apps.core.tenancy import get_or_404
from apps.organizations.api.rendering import (
    invitation_json,
    workspace_administrator_json,
    workspace_member_json,
)
from apps.organizations.api.request_helpers import paginate, validate_list
from apps.organizations.models import Invitation, User, Workspace, WorkspaceMembership
from apps.organizations.permissions import Level, OrganizationPermission, Permission
from apps.organizations.queries import memberships_by_user, query_workspace_administrators
from apps.organizations.roles import system_role
from apps.organizations.services import invitations, members, organization_caller_for
from apps.organizations.services.roles import AnyRole, find_role


class NewMemberSerializer(serializers.Serializer[Any]):
    """An organization member by id or email address, or an address to invite."""

    user_id = serializers.UUIDField(required=False, allow_null=True)
    email = serializers.EmailField(max_length=254, required=False, allow_null=True)
    full_name = serializers.CharField(
        max_length=150, required=False, allow_null=True, allow_blank=True
    )
    role_id = serializers.UUIDField(required=False, allow_null=True)
    workspace_role_id = serializers.UUIDField(required=False, allow_null=True)
    read_only = serializers.BooleanField(required=False, allow_null=True)  # type: ignore[assignment]

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs.get("user_id") and not attrs.get("email"):
            raise serializers.ValidationError("`user_id` or `email` is required.")
        return attrs


class RoleChangeSerializer(serializers.Serializer[Any]):
    role_id = serializers.UUIDField(required=False, allow_null=True)
    read_only = serializers.BooleanField(required=False, allow_null=True)  # type: ignore[assignment]


class WorkspaceMembersBase(WorkspaceAPIView):
    required_permission = {"GET": Permission.MEMBERS_READ, "*": Permission.MEMBERS_MANAGE}

    def query_members(self) -> Any:
        rows = WorkspaceMembership.objects.filter(workspace_id=self.workspace_id)
        return rows.select_related("user", "custom_role").order_by("user__email")

    def query_users(self) -> QuerySet[User]:
        """The users with access: members, and those who administer every workspace."""
        administrators = query_workspace_administrators(self.request.auth.organization_id)
        return User.objects.filter(
            Q(pk__in=self.query_members().values("user_id"))
            | Q(pk__in=administrators.values("user_id"))
        ).order_by("email")

    def users_json(self, users: list[User]) -> list[dict[str, Any]]:
        members = {row.user_id: row for row in self.query_members().filter(user__in=users)}
        memberships = memberships_by_user(self.request.auth.organization_id, users)
        return [
            workspace_member_json(members[user.pk], memberships.get(user.pk))
            if user.pk in members
            else workspace_administrator_json(self.workspace_id, user, memberships[user.pk])
            for user in users
        ]

    def query_invitations(self) -> Any:
        rows = Invitation.objects.open().to_workspace(self.workspace_id)
        rows = rows.select_related("organization", "custom_role")
        return rows.prefetch_related("workspaces__workspace", "workspaces__custom_role").order_by(
            "-created_at"
        )

    def members_json(self, rows: list[WorkspaceMembership]) -> list[dict[str, Any]]:
        memberships = memberships_by_user(
            self.request.auth.organization_id, [row.user for row in rows]
        )
        return [workspace_member_json(row, memberships.get(row.user_id)) for row in rows]

    def requested_role(self, body: dict[str, Any]) -> AnyRole:
        role_id = body.get("workspace_role_id") or body.get("role_id")
        if role_id is not None:
            return find_role(self.request.auth.organization_id, Level.WORKSPACE, role_id)
        return system_role(Level.WORKSPACE, "viewer" if body.get("read_only") else "editor")


class WorkspaceMembersView(WorkspaceMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        users, headers = paginate(request, self.query_users())
        return Response(
            {
                "tenant_id": self.workspace_id,
                "members": self.users_json(users),
                "pending": [invitation_json(row) for row in self.query_invitations()[:500]],
            },
            headers=headers,
        )

    @extend_schema(request=NewMemberSerializer, responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Add an organization member; invite an unknown address to organization and workspace."""
        return Response(self.add(validate(NewMemberSerializer, request.data)))

    def add(self, body: dict[str, Any]) -> dict[str, Any]:
        caller, role = self.request.auth, self.requested_role(body)
        users = User.objects.filter(memberships__organization_id=caller.organization_id)
        user = (
            get_or_404(users, pk=body["user_id"])
            if body.get("user_id")
            else users.filter(email=body["email"].strip().lower()).first()
        )
        if user is None:
            return self._invite(body, role)
        workspace = Workspace.objects.get(pk=self.workspace_id)
        membership = members.add_to_workspace(workspace=workspace, user=user, role=role, by=caller)
        return self.members_json([membership])[0]

    def _invite(self, body: dict[str, Any], role: AnyRole) -> dict[str, Any]:
        """Invite to the organization, which needs its permission."""
        by = inviter(self.request)
        invitation = invitations.invite(
            organization_id=by.organization_id,
            role=system_role(Level.ORGANIZATION, "member"),
            email=body["email"],
            full_name=body.get("full_name") or "",
            workspaces={self.workspace_id: role},
            by=by,
        )
        return invitation_json(invitation, invitations.invitation_url(invitation))


def inviter(request: ApiRequest) -> OrganizationCaller:
    """Return the caller on the organization if it may invite; else 403."""
    caller = request.auth
    user = User.objects.filter(pk=caller.user_id).first() if caller.user_id else None
    organization_caller = (
        organization_caller_for(user=user, organization_id=caller.organization_id)
        if user is not None and caller.key_id is None
        else None
    )
    if organization_caller is None:
        raise errors.Forbidden(
            "No organization member has this email address. Invite it with POST"
            " /orgs/current/members."
        )
    organization_caller.require(OrganizationPermission.PEOPLE_MANAGE)
    return organization_caller


class WorkspaceActiveMembersView(WorkspaceMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        users, headers = paginate(request, self.query_users())
        return Response(self.users_json(users), headers=headers)


class PendingMembersView(WorkspaceMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: ApiRequest) -> Response:
        rows, headers = paginate(request, self.query_invitations())
        return Response([invitation_json(row) for row in rows], headers=headers)


class WorkspaceMembersBatchView(WorkspaceMembersView):
    http_method_names = ["post", "options"]

    @extend_schema(request=NewMemberSerializer(many=True), responses=dict)
    def post(self, request: ApiRequest) -> Response:
        """Add or invite all or none."""
        with transaction.atomic():
            added = [self.add(body) for body in validate_list(NewMemberSerializer, request.data)]
        return Response(added)


class WorkspaceMemberView(WorkspaceMembersBase):
    def get_member(self, identity_id: UUID) -> WorkspaceMembership:
        """Return the member. Raises `NotFound`, and `Conflict` for an administrator of all."""
        administrators = query_workspace_administrators(self.request.auth.organization_id)
        if administrators.filter(pk=identity_id).exists():
            raise errors.Conflict(
                "This user administers every workspace: change the role in the organization."
            )
        member: WorkspaceMembership = get_or_404(self.query_members(), pk=identity_id)
        return member

    @extend_schema(request=RoleChangeSerializer, responses=dict)
    def patch(self, request: ApiRequest, identity_id: UUID) -> Response:
        membership = self.get_member(identity_id)
        body = validate(RoleChangeSerializer, request.data)
        changed = members.change_workspace_role(
            membership=membership, role=self.requested_role(body), by=request.auth
        )
        return Response(self.members_json([changed])[0])

    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, identity_id: UUID) -> Response:
        membership = self.get_member(identity_id)
        members.remove_from_workspace(membership=membership, by=request.auth)
        return Response(status=204)


class PendingMemberView(WorkspaceMembersBase):
    @extend_schema(responses={204: None})
    def delete(self, request: ApiRequest, identity_id: UUID) -> Response:
        """Revoke an invitation that includes no other workspace."""
        invitation = get_or_404(self.query_invitations(), pk=identity_id)
        if invitation.workspaces.exclude(workspace_id=self.workspace_id).exists():
            raise errors.Forbidden(
                "The invitation includes other workspaces. Revoke it in the organization."
            )
        invitations.revoke(invitation=invitation)
        return Response(status=204)


_MEMBERS = "workspaces/current/members"
routes = [
    path(_MEMBERS, WorkspaceMembersView.as_view(), name="workspace-members"),
    path(
        f"{_MEMBERS}/active", WorkspaceActiveMembersView.as_view(), name="workspace-members-active"
    ),
    path(f"{_MEMBERS}/pending", PendingMembersView.as_view(), name="workspace-members-pending"),
    path(f"{_MEMBERS}/batch", WorkspaceMembersBatchView.as_view(), name="workspace-members-batch"),
    path(f"{_MEMBERS}/<uuid:identity_id>", WorkspaceMemberView.as_view(), name="workspace-member"),
    path(
        f"{_MEMBERS}/<uuid:identity_id>/pending",
        PendingMemberView.as_view(),
        name="workspace-member-pending",
    ),
]
