"""Admin pages of users, organizations and workspaces. Roles are changed by services only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import BaseUserCreationForm
from django.db import models, transaction
from django.forms import ModelForm
from django.http import HttpRequest

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.admin_base import ReadOnly
from apps.organizations.models import (
    Invitation,
    Membership,
    Organization,
    Role,
    User,
    Workspace,
    WorkspaceMembership,
    WorkspaceSecret,
)


class UserCreationForm(BaseUserCreationForm[User]):
    class Meta:
        model = User
        fields = ("email",)


class MembershipOfUser(admin.TabularInline[Membership, User]):
    model = Membership
    fields = readonly_fields = ("organization", "role", "custom_role", "created_at")
    extra, max_num, can_delete = 0, 0, False


@admin.register(User)
class UserAdmin(DjangoUserAdmin[User]):
    add_form = UserCreationForm
    list_display = ("email", "name", "is_staff", "is_active", "last_login", "created_at")
    list_filter = ("is_staff", "is_active")
    search_fields = ("email", "name", "=id")
    ordering = ("email",)
    readonly_fields = ("id", "email_verified_at", "has_password", "last_login", "created_at")
    fieldsets = (
        (None, {"fields": ("id", "email", "email_verified_at", "name", "has_password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("Times", {"fields": ("last_login", "created_at")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "password1", "password2")}),)
    inlines = (MembershipOfUser,)
    show_full_result_count = False

    @admin.display(description="password", boolean=True)
    def has_password(self, user: User) -> bool:
        """Whether a password is set; its hash is not shown."""
        return user.has_usable_password()

    def save_model(
        self,
        request: HttpRequest,
        obj: User,
        form: ModelForm[User],
        change: bool,  # noqa: FBT001 -- Django's signature
    ) -> None:
        names = ("email", "name", "is_active", "is_staff", "is_superuser")
        before = User.objects.filter(pk=obj.pk).values(*names).first()
        with transaction.atomic():
            super().save_model(request, obj, form, change)
            record(
                Action.USER_UPDATED,
                Target("user", obj.pk, obj.email),
                before=before,
                after={name: getattr(obj, name) for name in names},
            )

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:  # noqa: A002
        response = super().user_change_password(request, id, form_url)
        if request.method == "POST" and response.status_code == 302:
            user = User.objects.get(pk=id)
            record(Action.USER_PASSWORD_CHANGED, Target("user", user.pk, user.email))
        return response

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False  # former users are deactivated, so that their actions keep an author


class WorkspaceInline(admin.TabularInline[Workspace, Organization]):
    model = Workspace
    fields = readonly_fields = ("name", "handle", "created_at", "deleted_at")
    extra, max_num, can_delete = 0, 0, False
    show_change_link = True


class MembershipInline(admin.TabularInline[Membership, Organization]):
    model = Membership
    fields = readonly_fields = ("user", "role", "custom_role", "created_at")
    extra, max_num, can_delete = 0, 0, False


@admin.register(Organization)
class OrganizationAdmin(ReadOnly[Organization]):
    """The organization list; apps/operators/admin.py adds usage and deployment status."""

    list_display: tuple[str, ...] = ("name", "number", "is_personal", "created_at")
    list_filter = ("is_personal",)
    search_fields = ("name", "=id")
    inlines = (WorkspaceInline, MembershipInline)


class WorkspaceMembershipInline(admin.TabularInline[WorkspaceMembership, Workspace]):
    model = WorkspaceMembership
    fields = readonly_fields = ("user", "role", "custom_role", "created_at")
    extra, max_num, can_delete = 0, 0, False


@admin.register(Workspace)
class WorkspaceAdmin(ReadOnly[Workspace]):
    list_display = ("name", "organization", "created_at", "deleted_at")
    list_select_related = ("organization",)
    list_filter = (("deleted_at", admin.EmptyFieldListFilter),)
    search_fields = ("name", "organization__name", "=id")
    inlines = (WorkspaceMembershipInline,)


@admin.register(Role)
class RoleAdmin(ReadOnly[Role]):
    list_display = ("display_name", "level", "organization", "created_at")
    list_select_related = ("organization",)
    search_fields = ("display_name", "organization__name")


@admin.register(Invitation)
class InvitationAdmin(ReadOnly[Invitation]):
    list_display = ("email", "organization", "invited_by", "expires_at", "claimed_at", "revoked_at")
    list_select_related = ("organization", "invited_by")
    search_fields = ("email", "organization__name")
    fields = (
        "organization",
        "email",
        "invited_by",
        "created_at",
        "expires_at",
        "mailed_at",
        "claimed_at",
        "declined_at",
        "revoked_at",
    )


@admin.register(WorkspaceSecret)
class WorkspaceSecretAdmin(ReadOnly[WorkspaceSecret]):
    """Names of secrets; values are not shown."""

    list_display = ("key", "workspace", "updated_at")
    list_select_related = ("workspace__organization",)
    search_fields = ("key", "workspace__name")
    fields = ("workspace", "key", "updated_at", "updated_by")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[WorkspaceSecret]:
        secrets = WorkspaceSecret.objects.across_workspaces(reason="operators list secret names")
        return secrets.defer("value")
