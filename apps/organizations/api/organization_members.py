"""Organization members, and invitations to the organization."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import transaction
from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from apps.audit.services import is_impersonated
from apps.core.api import (
    OrganizationAPIView,
    OrganizationRequest,
    PersonAPIView,
    PersonRequest,
    validate,
)
from apps.core.tenancy import get_or_404
from apps.organizations.api.rendering import invitation_json, member_json
from apps.organizations.api.request_helpers import paginate, validate_list
from apps.organizations.models import Invitation, Membership, User
from apps.organizations.permissions import Level, OrganizationPermission, PersonPermission
from apps.organizations.queries import workspace_roles_by_user
from apps.organizations.services import invitations, members
from apps.organizations.services.roles import find_role


class InviteeSerializer(serializers.Serializer[Any]):
    """An invitation; without an email address it is a link."""

    email = serializers.EmailField(
        max_length=254, required=False, allow_null=True, allow_blank=True
    )
    full_name = serializers.CharField(
        max_length=150, required=False, allow_null=True, allow_blank=True
    )
    role_id = serializers.UUIDField(required=False, allow_null=True)
    workspace_ids = serializers.ListField(
        child=serializers.UUIDField(), required=False, allow_null=True, max_length=500
    )
    workspace_role_id = serializers.UUIDField(required=False, allow_null=True)


class MemberChangesSerializer(serializers.Serializer[Any]):
    role_id = serializers.UUIDField()


class OwnChangesSerializer(serializers.Serializer[Any]):
    full_name = serializers.CharField(max_length=150, allow_blank=True)


class OrganizationMembersBase(OrganizationAPIView):
    required_permission = {
        "GET": OrganizationPermission.PEOPLE_READ,
        "*": OrganizationPermission.PEOPLE_MANAGE,
    }

    def query_members(self) -> Any:
        rows = Membership.objects.filter(organization_id=self.organization_id)
        return rows.select_related("user", "custom_role").order_by("user__email")

    def query_invitations(self) -> Any:
        rows = Invitation.objects.open().filter(organization_id=self.organization_id)
        rows = rows.select_related("organization", "custom_role")
        return rows.prefetch_related("workspaces__workspace", "workspaces__custom_role").order_by(
            "-created_at"
        )

    def members_json(self, rows: list[Membership]) -> list[dict[str, Any]]:
        roles_by_user = workspace_roles_by_user(self.organization_id, [row.user_id for row in rows])
        return [
            member_json(row, [(w.pk, role) for w, role in roles_by_user.get(row.user_id, [])])
            for row in rows
        ]

    def invitations_json(self, rows: list[Invitation]) -> list[dict[str, Any]]:
        """Include links only for callers who may invite members."""
        may_invite = self.request.auth.may(OrganizationPermission.PEOPLE_MANAGE)
        may = may_invite and not is_impersonated()
        return [
            invitation_json(row, invitations.invitation_url(row) if may else None) for row in rows
        ]

    def invite(self, body: dict[str, Any]) -> Invitation:
        organization_id = self.organization_id
        role = find_role(organization_id, Level.ORGANIZATION, body.get("role_id") or "member")
        workspace_role = find_role(
            organization_id, Level.WORKSPACE, body.get("workspace_role_id") or "editor"
        )
        return invitations.invite(
            organization_id=organization_id,
            role=role,
            email=body.get("email") or "",
            full_name=body.get("full_name") or "",
            workspaces=dict.fromkeys(body.get("workspace_ids") or [], workspace_role),
            by=self.request.auth,
        )


class OrganizationMembersView(OrganizationMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        rows, headers = paginate(request, self.query_members())
        return Response(
            {
                "organization_id": self.organization_id,
                "members": self.members_json(rows),
                "pending": self.invitations_json(list(self.query_invitations()[:500])),
            },
            headers=headers,
        )

    @extend_schema(request=InviteeSerializer, responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        invitation = self.invite(validate(InviteeSerializer, request.data))
        return Response(self.invitations_json([invitation])[0])


class OrganizationMembersBatchView(OrganizationMembersBase):
    @extend_schema(request=InviteeSerializer(many=True), responses=dict)
    def post(self, request: OrganizationRequest) -> Response:
        """Invite all or none."""
        with transaction.atomic():
            created = [self.invite(body) for body in validate_list(InviteeSerializer, request.data)]
        return Response(self.invitations_json(created))


class OrganizationActiveMembersView(OrganizationMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        rows, headers = paginate(request, self.query_members())
        return Response(self.members_json(rows), headers=headers)


class InvitationsView(OrganizationMembersBase):
    @extend_schema(responses=dict)
    def get(self, request: OrganizationRequest) -> Response:
        rows, headers = paginate(request, self.query_invitations())
        return Response(self.invitations_json(rows), headers=headers)


class InvitationView(OrganizationMembersBase):
    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, invitation_id: UUID) -> Response:
        invitation = get_or_404(self.query_invitations(), pk=invitation_id)
        invitations.revoke(invitation=invitation, by=request.auth)
        return Response(status=204)


class OrganizationMemberView(OrganizationMembersBase):
    @extend_schema(request=MemberChangesSerializer, responses=dict)
    def patch(self, request: OrganizationRequest, membership_id: UUID) -> Response:
        membership = get_or_404(self.query_members(), pk=membership_id)
        body = validate(MemberChangesSerializer, request.data)
        role = find_role(self.organization_id, Level.ORGANIZATION, body["role_id"])
        changed = members.change_role(membership=membership, role=role, by=request.auth)
        return Response(self.members_json([changed])[0])

    @extend_schema(responses={204: None})
    def delete(self, request: OrganizationRequest, membership_id: UUID) -> Response:
        membership = get_or_404(self.query_members(), pk=membership_id)
        members.remove_member(membership=membership, by=request.auth)
        return Response(status=204)


class OwnMembershipView(PersonAPIView):
    required_permission = PersonPermission.ME_WRITE

    @extend_schema(request=OwnChangesSerializer, responses=dict)
    def patch(self, request: PersonRequest) -> Response:
        """Change the user's own name."""
        body = validate(OwnChangesSerializer, request.data)
        user = members.update_profile(user_id=request.auth.user_id, name=body["full_name"])
        return Response({"user_id": user.pk, "email": user.email, "full_name": user.name or None})


class OwnInvitationsView(PersonAPIView):
    required_permission = PersonPermission.ME_READ

    @extend_schema(responses=dict)
    def get(self, request: PersonRequest) -> Response:
        """List the invitations to the user's verified address."""
        user = User.objects.get(pk=request.auth.user_id)
        return Response([invitation_json(row) for row in invitations.list_open_for(user)])


class OwnInvitationView(PersonAPIView):
    required_permission = PersonPermission.ME_WRITE

    @extend_schema(responses={204: None})
    def delete(self, request: PersonRequest, invitation_id: UUID) -> Response:
        user, invitation = _own_invitation(request, invitation_id)
        invitations.decline(invitation=invitation, user=user)
        return Response(status=204)


class ClaimView(PersonAPIView):
    required_permission = PersonPermission.ME_WRITE

    @extend_schema(responses=dict)
    def post(self, request: PersonRequest, invitation_id: UUID) -> Response:
        user, invitation = _own_invitation(request, invitation_id)
        membership = invitations.accept(invitation=invitation, user=user)
        roles = workspace_roles_by_user(membership.organization_id, [user.pk])[user.pk]
        return Response(
            member_json(membership, [(workspace.pk, role) for workspace, role in roles])
        )


def _own_invitation(request: PersonRequest, invitation_id: UUID) -> tuple[User, Invitation]:
    user = User.objects.get(pk=request.auth.user_id)
    rows = Invitation.objects.to_address(user.email)
    return user, get_or_404(rows, pk=invitation_id)


_MEMBERS = "orgs/current/members"
routes = [
    path(_MEMBERS, OrganizationMembersView.as_view(), name="organization-members"),
    path(
        f"{_MEMBERS}/active",
        OrganizationActiveMembersView.as_view(),
        name="organization-members-active",
    ),
    path(f"{_MEMBERS}/pending", InvitationsView.as_view(), name="organization-invitations"),
    path(
        f"{_MEMBERS}/batch",
        OrganizationMembersBatchView.as_view(),
        name="organization-members-batch",
    ),
    path(
        f"{_MEMBERS}/basic/batch",
        OrganizationMembersBatchView.as_view(),
        name="organization-members-basic-batch",
    ),
    path(
        f"{_MEMBERS}/pending/<uuid:invitation_id>",
        InvitationView.as_view(),
        name="organization-invitation",
    ),
    path(
        f"{_MEMBERS}/<uuid:invitation_id>/pending",
        InvitationView.as_view(),
        name="organization-member-pending",
    ),
    path(
        f"{_MEMBERS}/<uuid:membership_id>",
        OrganizationMemberView.as_view(),
        name="organization-member",
    ),
    path("orgs/members/basic", OwnMembershipView.as_view(), name="my-name"),
]
for _prefix in ("orgs", "workspaces"):
    routes += [
        path(f"{_prefix}/pending", OwnInvitationsView.as_view(), name=f"{_prefix}-my-invitations"),
        path(
            f"{_prefix}/pending/<uuid:invitation_id>",
            OwnInvitationView.as_view(),
            name=f"{_prefix}-my-invitation",
        ),
        path(
            f"{_prefix}/pending/<uuid:invitation_id>/claim",
            ClaimView.as_view(),
            name=f"{_prefix}-my-invitation-claim",
        ),
    ]
