"""Deployments of agents from Git, their revisions, logs and graphs."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from apps.api_keys.models import ApiKey
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.deployments.querysets import (
    DeploymentQuerySet,
    DeploymentWebhookQuerySet,
    EnvironmentVariableQuerySet,
    LogLineQuerySet,
    RevisionGraphQuerySet,
    RevisionQuerySet,
    StatusChangeQuerySet,
)
from apps.deployments.statuses import FINAL, DeploymentStatus, RevisionStatus
from apps.organizations.models import User
from apps.webhooks.models import WebhookEndpoint

MAX_REQUEST_LIMIT = 1_000_000


class Source(models.TextChoices):
    """The source type of a revision's code; the values are those of the API."""

    GIT = "github"
    ARCHIVE = "internal_source"


class Deployment(WorkspaceOwned):
    """An agent with a public URL, served by its active revision."""

    name = models.CharField(max_length=63)
    slug = models.SlugField(max_length=80, unique=True)
    """The last part of the agent's URL, unique across workspaces."""
    display_name = models.CharField(max_length=200, blank=True)
    status = models.CharField(
        max_length=20, choices=DeploymentStatus, default=DeploymentStatus.AWAITING_DATABASE
    )
    source = models.CharField(max_length=20, choices=Source, default=Source.GIT)
    repo_url = models.CharField(max_length=2000, blank=True)
    branch = models.CharField(max_length=255, blank=True)
    """Empty for the repository's default branch."""
    config_path = models.CharField(max_length=500, default="langgraph.json")
    deployment_type = models.CharField(max_length=20, default="prod")
    resource_spec = models.JSONField(null=True, blank=True)
    build_on_push = models.BooleanField(default=False)
    tracing = models.BooleanField(default=True)
    """Whether graph hosts trace to the project with the deployment's name."""
    request_limit = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_REQUEST_LIMIT)],
    )
    """Maximum requests per `request_limit_seconds`, over all callers; None for no limit."""
    request_limit_seconds = models.PositiveIntegerField(
        default=10, validators=[MinValueValidator(1), MaxValueValidator(86_400)]
    )
    ingest_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, related_name="+")
    ingest_secret = models.BinaryField(null=True, editable=False)
    """The encrypted secret of `ingest_key`, with which graph hosts trace."""
    active_revision = models.ForeignKey("Revision", models.SET_NULL, null=True, related_name="+")
    """Kept while the deployment is stopped: its custom authentication still guards the routes."""
    host_generation = models.PositiveIntegerField(default=0)
    """Workers replace graph hosts that started in an earlier generation."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(DeploymentQuerySet)
    unscoped = DeploymentQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"],
                condition=Q(deleted_at=None),
                name="deployment_name_once",
            )
        ]
        indexes = [models.Index(fields=["workspace", "-created_at"], name="deployment_newest")]

    def __str__(self) -> str:
        return self.name

    @property
    def is_stopped(self) -> bool:
        return self.status == DeploymentStatus.STOPPED


class EnvironmentVariable(WorkspaceOwned):
    """An environment variable of a deployment; the value is encrypted and never shown."""

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="variables")
    name = models.CharField(max_length=255)
    value = models.BinaryField(editable=False)

    objects = TenantManager(EnvironmentVariableQuerySet)
    unscoped = EnvironmentVariableQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "name"], name="variable_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name


class Revision(WorkspaceOwned):
    """One build of a deployment. The inputs are immutable; status and results change."""

    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    status = models.CharField(
        max_length=20, choices=RevisionStatus, default=RevisionStatus.CREATING
    )
    source = models.CharField(max_length=20, choices=Source, default=Source.GIT)
    repo_url = models.CharField(max_length=2000, blank=True)
    ref = models.CharField(max_length=255, blank=True)
    commit_sha = models.CharField(max_length=64, blank=True)
    commit_subject = models.CharField(max_length=500, blank=True)
    config_path = models.CharField(max_length=500)
    config = models.JSONField(null=True, blank=True)
    """The validated content of `langgraph.json`."""
    facts = models.JSONField(default=dict, blank=True)
    """Build facts: the `python_version` of the environment (null for the platform's interpreter),
    `versions` of Python and LangGraph, `variables` that configure the server, and the rules and
    routes of the project's `auth` and `http`, and the `disk_bytes` of its folder."""
    environment = models.BinaryField(null=True, editable=False)
    """The encrypted variables of the deployment at the time of creation."""
    failure = models.TextField(blank=True)
    """The failure message for the author of the agent."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)
    started_at = models.DateTimeField(null=True, blank=True)
    """When a builder first claimed the revision, or claimed it again for a rollback."""
    finished_at = models.DateTimeField(null=True, blank=True)

    # A builder claims a revision with a lease. When the lease expires, the build starts again.
    attempt = models.PositiveIntegerField(default=0)
    """The fencing token: a builder with a lower attempt can no longer change the revision."""
    built_attempt = models.PositiveIntegerField(null=True, blank=True)
    """The attempt whose folder has the finished build."""
    crash_count = models.PositiveSmallIntegerField(default=0)
    """How often a builder of the revision died."""
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)

    objects = TenantManager(RevisionQuerySet)
    unscoped = RevisionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "deployment", "number"], name="revision_number_once"
            )
        ]
        indexes = [
            models.Index(
                fields=["lease_expires_at"],
                condition=~Q(status__in=sorted(FINAL)),
                name="revision_open",
            )
        ]

    def __str__(self) -> str:
        return f"{self.deployment.name} #{self.number}"

    @property
    def is_final(self) -> bool:
        return self.status in FINAL

    @property
    def shown_status(self) -> str:
        """The status for pages: a deployed revision that no longer serves is `REPLACED`."""
        is_deployed = self.status == RevisionStatus.DEPLOYED
        if is_deployed and self.deployment.active_revision_id != self.pk:
            return "REPLACED"
        return self.status

    @property
    def is_built(self) -> bool:
        return self.built_attempt is not None


class StatusChange(WorkspaceOwned):
    """A recorded status change of a revision."""

    revision = models.ForeignKey(Revision, models.CASCADE, related_name="status_changes")
    status = models.CharField(max_length=20, choices=RevisionStatus)
    detail = models.TextField(blank=True)

    objects = TenantManager(StatusChangeQuerySet)
    unscoped = StatusChangeQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["workspace", "revision", "created_at"], name="status_change_order")
        ]

    def __str__(self) -> str:
        return self.status


class LogKind(models.TextChoices):
    BUILD = "build"
    SERVER = "deploy"


class LogLine(WorkspaceOwned):
    """A log line of a build or of a serving graph host."""

    # A sequence, so that ids order lines by arrival.
    id = models.BigAutoField(primary_key=True)  # type: ignore[assignment]
    created_at = models.DateTimeField(db_default=Now())
    deployment = models.ForeignKey(Deployment, models.CASCADE, related_name="+", db_index=False)
    revision = models.ForeignKey(Revision, models.CASCADE, related_name="log_lines", db_index=False)
    kind = models.CharField(max_length=10, choices=LogKind)
    level = models.CharField(max_length=10, default="INFO")
    message = models.TextField()

    objects = TenantManager(LogLineQuerySet)
    unscoped = LogLineQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["workspace", "revision", "kind", "id"], name="log_of_revision"),
            models.Index(
                fields=["workspace", "deployment", "kind", "id"], name="log_of_deployment"
            ),
            # For cascading deletes of revisions and deployments.
            models.Index(fields=["revision"], name="log_revision"),
            models.Index(fields=["deployment"], name="log_deployment"),
        ]

    def __str__(self) -> str:
        return self.message


class RevisionGraph(WorkspaceOwned):
    """A graph of a revision, with the schemas and drawing that its host reported.

    They are empty if the build could not create the graph.
    """

    revision = models.ForeignKey(Revision, models.CASCADE, related_name="graphs")
    graph_id = models.CharField(max_length=255)
    description = models.TextField(blank=True)
    schemas = models.JSONField(default=dict)
    """`input_schema`, `output_schema`, `state_schema`, `config_schema`, `context_schema`."""
    drawing = models.JSONField(default=dict)
    """`{"nodes": [...], "edges": [...]}` in the format of the Agent Server."""

    objects = TenantManager(RevisionGraphQuerySet)
    unscoped = RevisionGraphQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "revision", "graph_id"], name="revision_graph_once"
            )
        ]

    def __str__(self) -> str:
        return self.graph_id


class DeploymentEvent(models.TextChoices):
    """Events of revisions that fire webhooks; the values are part of the API."""

    DEPLOYED = "revision.deployed"
    FAILED = "revision.failed"
    INTERRUPTED = "revision.interrupted"


class DeploymentWebhook(WebhookEndpoint):
    """An address that is told about revisions of one deployment or of all."""

    deployment = models.ForeignKey(
        Deployment, models.CASCADE, null=True, related_name="+", db_index=False
    )
    events = ArrayField(models.CharField(max_length=30, choices=DeploymentEvent), default=list)

    objects = TenantManager(DeploymentWebhookQuerySet)
    unscoped = DeploymentWebhookQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "created_at", "id"], name="deployment_webhooks"),
            models.Index(fields=["deployment"], name="webhook_of_deployment"),
        ]
