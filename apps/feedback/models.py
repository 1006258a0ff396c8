"""Feedback on runs and projects, and the configs that give its scores a meaning."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.feedback.querysets import (
    FeedbackConfigQuerySet,
    FeedbackFormulaQuerySet,
    FeedbackQuerySet,
    FeedbackTokenQuerySet,
)

KEY_LENGTH = 1000


class FeedbackType(models.TextChoices):
    """The kind of score of a key; the values are on the wire."""

    CONTINUOUS = "continuous"
    CATEGORICAL = "categorical"
    FREEFORM = "freeform"


class Aggregation(models.TextChoices):
    """How a formula combines its parts; the values are on the wire."""

    SUM = "sum"
    AVERAGE = "avg"


class FeedbackConfig(WorkspaceOwned):
    """States what the scores of one key mean."""

    key = models.CharField(max_length=KEY_LENGTH)
    config = models.JSONField()
    """`type`, `min`, `max`, `categories`, `allows_multiple_categories`."""
    is_lower_score_better = models.BooleanField(null=True)
    is_enforced = models.BooleanField(default=False)
    """Whether feedback that does not match the config is rejected."""
    is_inferred = models.BooleanField(default=False)
    """Whether the config was inferred from the first feedback; an explicit config replaces it."""
    modified_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(FeedbackConfigQuerySet)
    unscoped = FeedbackConfigQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "key"], name="feedback_config_once")
        ]

    def __str__(self) -> str:
        return self.key


class FeedbackFormula(WorkspaceOwned):
    """A key whose scores are computed from other keys, for one project or one dataset."""

    project = models.ForeignKey(
        "tracing.Project",
        models.CASCADE,
        null=True,
        related_name="feedback_formulas",
        db_index=False,
    )
    dataset_id = models.UUIDField(null=True)
    """The formula applies to all experiments on this dataset."""
    key = models.CharField(max_length=KEY_LENGTH)
    aggregation = models.CharField(max_length=10, choices=Aggregation)
    parts = models.JSONField()
    """List of objects with `part_type`, `key` and `weight`."""
    modified_at = models.DateTimeField(auto_now=True)
    is_stale = models.BooleanField(default=True)
    """Whether the formula is new or changed and not yet applied to existing feedback."""

    objects = TenantManager(FeedbackFormulaQuerySet)
    unscoped = FeedbackFormulaQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.CheckConstraint(
                condition=Q(project=None, dataset_id__isnull=False)
                | Q(project__isnull=False, dataset_id=None),
                name="feedback_formula_one_scope",
            ),
            models.UniqueConstraint(
                fields=["workspace", "project", "dataset_id", "key"],
                nulls_distinct=False,
                name="feedback_formula_once",
            ),
        ]
        indexes = [
            models.Index(
                fields=["modified_at"], condition=Q(is_stale=True), name="feedback_formula_stale"
            )
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def part_keys(self) -> list[str]:
        return [part["key"] for part in self.parts]

    def score(self, scores: dict[str, float]) -> float | None:
        """Return the weighted sum or mean of the parts; None unless each part has a score."""
        if not all(key in scores for key in self.part_keys):
            return None
        total = sum(part["weight"] * scores[part["key"]] for part in self.parts)
        if self.aggregation == Aggregation.SUM:
            return float(total)
        weight = sum(part["weight"] for part in self.parts)
        return total / weight if weight else None


class FeedbackToken(WorkspaceOwned):
    """Permits a browser to give feedback on one run without an API key.

    The token and the id each permit it, until the token expires; each use is another feedback. The
    id of the feedback differs from the token's, because readers of the feedback see it.
    """

    token_hash = models.BinaryField(unique=True)
    token = models.BinaryField()
    """The token, encrypted rather than hashed because its URL can be listed again."""
    run_id = models.UUIDField()
    key = models.CharField(max_length=KEY_LENGTH)
    expires_at = models.DateTimeField()

    objects = TenantManager(FeedbackTokenQuerySet)
    unscoped = FeedbackTokenQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(
                fields=["workspace", "run_id", "created_at"], name="feedback_token_of_run"
            ),
            models.Index(fields=["expires_at"], name="feedback_token_expiry"),
        ]

    def __str__(self) -> str:
        return f"{self.key} on {self.run_id}"

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at <= now


class Feedback(WorkspaceOwned):
    """A keyed score, value or comment on a run or a project. It may arrive before its run."""

    created_at = models.DateTimeField(default=timezone.now)
    """The time that the client sent, or the server time if it sent none."""
    project = models.ForeignKey(
        "tracing.Project", models.CASCADE, null=True, related_name="feedback", db_index=False
    )
    run_id = models.UUIDField(null=True)
    trace_id = models.UUIDField(null=True)
    is_root = models.BooleanField(null=True)
    """Whether the run is the root of its trace; null while unknown."""
    start_time = models.DateTimeField(null=True)
    """Start time of the run."""
    thread_key = models.TextField(null=True)  # noqa: DJ001  (null: none)
    """The thread that the feedback names, else the thread of the run."""
    is_on_thread = models.BooleanField(default=False)
    """Whether the feedback is on the whole thread, not on one run."""
    is_pending = models.BooleanField(default=False)
    """Whether the run has not been looked up since the feedback was written."""
    keeps_trace = models.BooleanField(default=True)
    """Whether the feedback extends the retention of its trace."""
    key = models.CharField(max_length=KEY_LENGTH)
    score = models.FloatField(null=True)
    value = models.JSONField(null=True)
    label = models.CharField(max_length=100, null=True)  # noqa: DJ001  (null: none)
    """The value as statistics count it; null for an object, a list or a long text."""
    comment = models.TextField(null=True)  # noqa: DJ001  (null and "" differ on the wire)
    correction = models.JSONField(null=True)
    source = models.JSONField(default=dict)
    """`type` and `metadata` of the source."""
    source_type = models.CharField(max_length=100, default="api")
    user_id = models.UUIDField(null=True)
    """The user of the API key or session."""
    extra = models.JSONField(null=True)
    feedback_group_id = models.UUIDField(null=True)
    comparative_experiment_id = models.UUIDField(null=True)
    formula = models.ForeignKey(
        FeedbackFormula, models.CASCADE, null=True, related_name="feedback", db_index=False
    )
    """The formula that computed the score; null if a client sent the feedback."""
    is_error = models.BooleanField(default=False)
    modified_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(FeedbackQuerySet)
    unscoped = FeedbackQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        verbose_name_plural = "feedback"
        indexes = [
            models.Index(fields=["workspace", "run_id"], name="feedback_of_run"),
            models.Index(fields=["workspace", "trace_id"], name="feedback_of_trace"),
            models.Index(fields=["workspace", "created_at", "id"], name="feedback_newest"),
            models.Index(fields=["workspace", "key", "created_at", "id"], name="feedback_of_key"),
            models.Index(fields=["project", "created_at", "id"], name="feedback_newest_of_project"),
            models.Index(
                fields=["project", "start_time"],
                include=["key", "score", "label", "source_type", "is_root", "is_error"],
                condition=Q(run_id__isnull=False),
                name="feedback_scores_of_project",
            ),
            models.Index(
                fields=["project", "key"],
                condition=Q(run_id=None),
                name="feedback_on_project",
            ),
            models.Index(
                fields=["project", "thread_key"],
                condition=Q(thread_key__isnull=False),
                name="feedback_of_thread",
            ),
            models.Index(
                fields=["workspace", "comparative_experiment_id"],
                condition=Q(comparative_experiment_id__isnull=False),
                name="feedback_of_comparison",
            ),
            models.Index(
                fields=["formula"], condition=Q(formula__isnull=False), name="feedback_computed"
            ),
            models.Index(
                fields=["modified_at"], condition=Q(is_pending=True), name="feedback_pending"
            ),
        ]

    def __str__(self) -> str:
        return self.key
