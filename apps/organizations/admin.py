"""Operators' view of people and places."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import BaseUserCreationForm

from apps.organizations.models import (
    Membership,
    Organization,
    User,
    Workspace,
    WorkspaceMembership,
)


class UserCreationForm(BaseUserCreationForm[User]):
    class Meta:
        model = User
        fields = ("email",)


@admin.register(User)
class UserAdmin(DjangoUserAdmin[User]):
    add_form = UserCreationForm
    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    list_filter = ("is_staff", "is_active")
    search_fields = ("email", "name")
    ordering = ("email",)
    readonly_fields = ("last_login", "created_at")
    fieldsets = (
        (None, {"fields": ("email", "name", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser")}),
        ("Times", {"fields": ("last_login", "created_at")}),
    )
    add_fieldsets = ((None, {"fields": ("email", "password1", "password2")}),)


class MembershipInline(admin.TabularInline[Membership, Organization]):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


class WorkspaceInline(admin.TabularInline[Workspace, Organization]):
    model = Workspace
    extra = 0
    show_change_link = True


@admin.register(Organization)
class OrganizationAdmin(admin.ModelAdmin[Organization]):
    list_display = ("name", "number", "created_at")
    search_fields = ("name",)
    readonly_fields = ("number", "created_at")
    inlines = (WorkspaceInline, MembershipInline)


class WorkspaceMembershipInline(admin.TabularInline[WorkspaceMembership, Workspace]):
    model = WorkspaceMembership
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(Workspace)
class WorkspaceAdmin(admin.ModelAdmin[Workspace]):
    list_display = ("name", "organization", "created_at")
    list_select_related = ("organization",)
    search_fields = ("name", "organization__name")
    readonly_fields = ("created_at",)
    inlines = (WorkspaceMembershipInline,)
