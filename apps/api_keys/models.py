"""API keys. Only hashes are stored; the secret is shown once."""

from __future__ import annotations

from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.ids import uuid7
from apps.organizations.models import Organization, User, Workspace


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def live(self) -> ApiKeyQuerySet:
        """Neither revoked nor expired."""
        now = timezone.now()
        return self.filter(Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now)))

    def unrevoked(self) -> ApiKeyQuerySet:
        """Keys to list; includes expired ones, so that they can be removed."""
        return self.filter(revoked_at=None)

    def service(self) -> ApiKeyQuerySet:
        return self.filter(kind="service")

    def personal(self) -> ApiKeyQuerySet:
        return self.filter(kind="personal")

    def of_person(self, person_id: UUID) -> ApiKeyQuerySet:
        return self.personal().filter(person_id=person_id)

    def reaching(self, workspace_id: UUID) -> ApiKeyQuerySet:
        """Service keys with access to the workspace."""
        through = self.model.workspaces.through.objects.filter(workspace_id=workspace_id)
        has_workspace = Q(pk__in=through.values("apikey_id"))
        return self.service().filter(has_workspace | Q(is_organization_wide=True))

    def newest_first(self) -> ApiKeyQuerySet:
        return self.order_by("-created_at", "-pk")


class KeyKind(models.TextChoices):
    SERVICE = "service"
    """Belongs to the organization and survives its creator."""
    PERSONAL = "personal"
    """Acts as its user, with the permissions that both its scopes and the user's roles allow."""


class ApiKey(models.Model):
    """A key of an organization: for all or some workspaces, or for those of its user."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    organization = models.ForeignKey(Organization, models.CASCADE, related_name="api_keys")
    kind = models.CharField(max_length=10, choices=KeyKind, default=KeyKind.SERVICE, editable=False)
    person = models.ForeignKey(
        User, models.CASCADE, null=True, editable=False, related_name="personal_keys"
    )
    """The user of a personal key."""
    workspace = models.ForeignKey(
        Workspace, models.SET_NULL, null=True, blank=True, related_name="api_keys"
    )
    """The default workspace of requests that name none."""
    is_organization_wide = models.BooleanField(default=False, editable=False)
    """A service key for every current and future workspace."""
    workspaces = models.ManyToManyField(Workspace, related_name="+", blank=True)
    """The workspaces of other service keys; none if all were deleted."""
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, editable=False)
    """The visible prefix of the secret."""
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    """SHA-256 of the secret, whose 256 random bits need no slow hash."""
    previous_prefix = models.CharField(max_length=16, blank=True, editable=False)
    previous_digest = models.BinaryField(max_length=32, unique=True, null=True, editable=False)
    """The secret before the last rotation."""
    previous_until = models.DateTimeField(null=True, editable=False)
    previous_used_at = models.DateTimeField(null=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=20))
    audience = models.CharField(
        max_length=200, blank=True, default="", db_default="", editable=False
    )
    """The only MCP server that accepts the key, see `RequestContext`; empty for no limit."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    rotated_at = models.DateTimeField(null=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(kind=KeyKind.PERSONAL, person__isnull=False, is_organization_wide=False)
                | Q(kind=KeyKind.SERVICE, person=None),
                name="api_key_of_person_or_service",
            )
        ]
        indexes = [
            models.Index(fields=["organization", "kind", "-created_at"], name="api_key_list")
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def is_live(self) -> bool:
        expired = self.expires_at is not None and self.expires_at <= timezone.now()
        return self.revoked_at is None and not expired

    @property
    def is_expired(self) -> bool:
        return self.revoked_at is None and not self.is_live

    @property
    def is_rotatable(self) -> bool:
        """Clients renew the keys of their sessions by themselves."""
        return self.is_live and not hasattr(self, "client_session")

    @property
    def is_read_only(self) -> bool:
        return self.scopes == ["read"]

    @property
    def is_rotating(self) -> bool:
        """Whether the secret before the last rotation is still valid."""
        return self.previous_until is not None and self.previous_until > timezone.now()


class DeviceLoginState(models.TextChoices):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"


class DeviceLogin(models.Model):
    """A client that waits for a user's approval (RFC 8628); deleted when its tokens are issued."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    client_id = models.CharField(max_length=100)
    device_digest = models.BinaryField(max_length=32, unique=True)
    """SHA-256 of the device code, whose 256 random bits need no slow hash."""
    user_code_digest = models.BinaryField(max_length=32, unique=True)
    """HMAC of the short user code with the installation's secret."""
    address = models.GenericIPAddressField(null=True)
    """The client's address, for the approval page."""
    audience = models.CharField(max_length=200, blank=True, default="", db_default="")
    """That of the key."""
    state = models.CharField(
        max_length=10, choices=DeviceLoginState, default=DeviceLoginState.PENDING
    )
    key = models.OneToOneField(ApiKey, models.CASCADE, null=True, related_name="device_login")
    """The user's key that the approval created; the client receives its secret."""
    interval_seconds = models.PositiveSmallIntegerField()
    last_polled_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state=DeviceLoginState.APPROVED, key__isnull=False)
                | (~Q(state=DeviceLoginState.APPROVED) & Q(key=None)),
                name="device_login_key_if_approved",
            )
        ]

    def __str__(self) -> str:
        return f"{self.client_id} ({self.state})"


class AuthorizationCode(models.Model):
    """A user's consent that a client exchanges for tokens (RFC 6749); kept until it expires."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    digest = models.BinaryField(max_length=32, unique=True)
    """SHA-256 of the code, whose 256 random bits need no slow hash."""
    client_id = models.CharField(max_length=100)
    """A digest of the client's id, as in `ClientSession`."""
    redirect_uri = models.TextField()
    challenge = models.CharField(max_length=43)
    """PKCE, S256."""
    key = models.OneToOneField(ApiKey, models.CASCADE, related_name="authorization_code")
    """The user's key that the consent created; the client receives its secret."""
    used_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"{self.client_id} until {self.expires_at:%H:%M:%S}"


class ClientSession(models.Model):
    """The sign-in of a client: its personal key is the access token, which `refresh` renews."""

    key = models.OneToOneField(
        ApiKey, models.CASCADE, primary_key=True, related_name="client_session"
    )
    client_id = models.CharField(max_length=100)
    refresh_digest = models.BinaryField(max_length=32, unique=True)
    previous_refresh_digest = models.BinaryField(max_length=32, unique=True, null=True)
    """The token that the last refresh spent: its reuse ends the session."""
    refreshed_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)
    """The end of the session, however often it is refreshed."""

    def __str__(self) -> str:
        return f"{self.client_id} until {self.expires_at:%Y-%m-%d}"

    @property
    def is_over(self) -> bool:
        return self.expires_at <= timezone.now()
