"""Users, organizations and workspaces."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from apps.core.ids import uuid7
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.organizations.querysets import SecretQuerySet, WorkspaceQuerySet


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=email.strip().lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(AbstractBaseUser, PermissionsMixin):
    """A user. `is_staff` marks operators, who may use the admin site."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    email = models.EmailField(max_length=254, unique=True)
    email_verified_at = models.DateTimeField(null=True, blank=True)
    """When the address was verified. Without it, a user can accept invitations only by link."""
    name = models.CharField(max_length=150, blank=True)
    time_zone = models.CharField(max_length=64, blank=True)
    """An IANA name; empty for the browser's zone."""
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


class OrganizationSequence(models.Func):
    """The next value of the sequence that 0001_initial creates."""

    template = "nextval('organizations_number')"
    arity = 0
    output_field = models.BigIntegerField()


class Organization(models.Model):
    """A customer: members, workspaces and billing."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    number = models.BigIntegerField(unique=True, editable=False, db_default=OrganizationSequence())
    """Small and permanent; the sandbox derives the organization's uid from it."""
    name = models.CharField(max_length=100, unique=True)
    is_personal = models.BooleanField(default=False)
    """Created for one user at sign-up; informative only."""
    public_sharing_disabled = models.BooleanField(default=False)
    """Traces cannot be shared, and existing public links do not work."""
    personal_keys_disabled = models.BooleanField(default=False)
    """Personal keys cannot be created, and existing ones are rejected."""
    max_key_days = models.PositiveIntegerField(null=True, blank=True)
    """Maximum lifetime of new keys, in days."""
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Workspace(models.Model):
    """The unit of tenancy: every tenant row belongs to exactly one."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="workspaces")
    name = models.CharField(max_length=100)
    handle = models.CharField(max_length=40, null=True, blank=True, unique=True)
    """The public prefix of published items; `tenant_handle` in the API."""
    created_at = models.DateTimeField(auto_now_add=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)
    """Access ended at this time; the data is being deleted."""

    objects = WorkspaceQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "name"],
                condition=Q(deleted_at=None),
                name="workspace_name_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.organization.name} / {self.name}"

    @property
    def is_deleted(self) -> bool:
        return self.deleted_at is not None


class WorkspaceSecret(WorkspaceOwned):
    """A name and an encrypted, write-only value."""

    key = models.CharField(max_length=200)
    value = models.BinaryField(editable=False)
    updated_at = models.DateTimeField(auto_now=True)
    updated_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    objects = TenantManager(SecretQuerySet)
    unscoped = SecretQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [models.UniqueConstraint(fields=["workspace", "key"], name="secret_key_once")]

    def __str__(self) -> str:
        return self.key
