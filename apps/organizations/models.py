"""Organizations, their workspaces, and the people in them."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models.functions import Lower

from apps.core.ids import uuid7
from apps.organizations.permissions import ORGANIZATION_ROLES, WORKSPACE_ROLES
from apps.organizations.querysets import WorkspaceQuerySet


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A person. `is_staff` marks operators, who may use the admin site."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=150, blank=True)
    is_staff = models.BooleanField(default=False)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"

    class Meta:
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_once")]

    def __str__(self) -> str:
        return self.email

    @property
    def display_name(self) -> str:
        return self.name or self.email.split("@")[0]


class NextNumber(models.Func):
    """The next value of the sequence that 0001_initial makes."""

    template = "nextval('organizations_number')"
    arity = 0
    output_field = models.BigIntegerField()


class Organization(models.Model):
    """A customer: people, workspaces, and what they are billed for."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    number = models.BigIntegerField(unique=True, editable=False, db_default=NextNumber())
    """Small and lasting; the sandbox derives the organization's user id from it."""
    name = models.CharField(max_length=100, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Workspace(models.Model):
    """The unit of tenancy: every tenant row belongs to exactly one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="workspaces")
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = WorkspaceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "name"], name="workspace_name_once")
        ]

    def __str__(self) -> str:
        return f"{self.organization.name} / {self.name}"


class Membership(models.Model):
    """A person's role in an organization."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=[(r, r) for r in ORGANIZATION_ROLES])
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "user"], name="membership_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.organization} as {self.role}"


class WorkspaceMembership(models.Model):
    """A person's role in one workspace of an organization they belong to."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    workspace = models.ForeignKey(Workspace, models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, models.CASCADE, related_name="workspace_memberships")
    role = models.CharField(max_length=20, choices=[(r, r) for r in WORKSPACE_ROLES])
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="workspace_membership_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.workspace} as {self.role}"
