"""Evaluators, the rules that bind them to runs, and the evaluations of single runs."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.annotation.models import AnnotationQueue
from apps.core.tenancy import TenantManager, WorkspaceOwned
from apps.datasets.models import Dataset
from apps.evaluators.querysets import (
    CodeTrialQuerySet,
    EvaluationQuerySet,
    EvaluatorQuerySet,
    EvaluatorRuleQuerySet,
    EvaluatorSpendQuerySet,
    RuleBackfillQuerySet,
)
from apps.organizations.models import User
from apps.playground.models import SavedSettings
from apps.prompts.models import Repository
from apps.tracing.models import Project


class EvaluatorType(models.TextChoices):
    """How an evaluator scores a run. The values are part of the API."""

    LLM = "llm", "LLM judge"
    CODE = "code", "Code"


class Evaluator(WorkspaceOwned):
    """A judge or a function.

    A judge is a prompt with a response schema whose properties are feedback keys. The prompt is a
    commit of the workspace, resolved at each evaluation, or `setting`.
    """

    name = models.CharField(max_length=200)
    type = models.CharField(max_length=20, choices=EvaluatorType, default=EvaluatorType.LLM)
    prompt = models.ForeignKey(
        Repository, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    """Null for an evaluator with a prompt of its own, and after the prompt was deleted."""
    commit_name = models.CharField(max_length=200, blank=True)
    """A hash or a tag; empty for an evaluator with a prompt of its own."""
    setting = models.JSONField(null=True)
    """The playground's setting; null for a commit."""
    saved_settings = models.ForeignKey(
        SavedSettings, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    model = models.JSONField(null=True)
    """Settings of the model in place of those of the commit."""
    variable_mapping = models.JSONField(default=dict)
    """The path of a value of the run or its example by variable of the prompt."""
    code = models.TextField(blank=True)
    """The Python source of a function `perform_eval`; empty for a judge."""
    feedback_keys = models.JSONField(default=list)
    """As of the last time that the prompt was read. Those of code that its source shows, and those
    that it has returned since."""
    metadata = models.JSONField(default=dict)
    is_part_of_rule = models.BooleanField(default=False)
    """Whether it was created with a rule, and is deleted with its last one."""
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(EvaluatorQuerySet)
    unscoped = EvaluatorQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="evaluator_newest"),
            models.Index(fields=["prompt"], name="evaluator_of_prompt"),
            models.Index(fields=["saved_settings"], name="evaluator_of_settings"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_code(self) -> bool:
        return self.type == EvaluatorType.CODE


class EvaluatorRule(WorkspaceOwned):
    """Applies its actions to the experiments on a dataset, or to the traces of a project.

    It scores runs by its evaluator, puts them in its annotation queue, or both.
    """

    name = models.CharField(max_length=200)
    evaluator = models.ForeignKey(
        Evaluator, models.CASCADE, null=True, related_name="rules", db_index=False
    )
    """Null for a rule that only puts runs in a queue."""
    annotation_queue = models.ForeignKey(
        AnnotationQueue, models.SET_NULL, null=True, related_name="+", db_index=False
    )
    """Null for no queue, and after it was deleted."""
    extends_queue_retention = models.BooleanField(default=False, db_default=False)
    """Whether traces of runs in the queue are kept as long as those with feedback."""
    dataset = models.ForeignKey(
        Dataset, models.CASCADE, null=True, related_name="+", db_index=False
    )
    project = models.ForeignKey(
        Project, models.CASCADE, null=True, related_name="+", db_index=False
    )
    is_enabled = models.BooleanField(default=True)
    applies_from = models.DateTimeField(default=timezone.now)
    """Runs received before, and while the rule was disabled, are not evaluated."""
    sampling_rate = models.FloatField(default=1.0)
    filter = models.TextField(blank=True)
    """Of the root run."""
    trace_filter = models.TextField(blank=True)
    """Of the root of the trace, which is the same run: both must hold."""
    tree_filter = models.TextField(blank=True)
    """Of any run of the trace."""
    max_calls_per_day = models.PositiveIntegerField()
    weekly_limit_usd = models.DecimalField(null=True, max_digits=12, decimal_places=4)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(EvaluatorRuleQuerySet)
    unscoped = EvaluatorRuleQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.CheckConstraint(
                condition=Q(dataset=None, project__isnull=False)
                | Q(dataset__isnull=False, project=None),
                name="evaluator_rule_one_scope",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="evaluator_rule_newest"),
            models.Index(fields=["evaluator"], name="evaluator_rule_of_evaluator"),
            models.Index(fields=["dataset"], name="evaluator_rule_of_dataset"),
            models.Index(fields=["project"], name="evaluator_rule_of_project"),
            models.Index(
                fields=["annotation_queue"],
                condition=Q(annotation_queue__isnull=False),
                name="evaluator_rule_of_queue",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_code(self) -> bool:
        """Whether its evaluator is a function."""
        return self.evaluator is not None and self.evaluator.is_code


class EvaluationStatus(models.TextChoices):
    PENDING = "pending"
    RUNNING = "running"
    """A worker holds the lease, which ends at `due_at`."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The run has no output, or the rule has reached a limit."""


class Evaluation(WorkspaceOwned):
    """The application of one rule to one run, which happens once unless someone asks for it again.

    Every write of a worker is conditional on `attempt`: the result of a worker that lost its lease
    is discarded. The row is removed with its run.
    """

    workspace = models.ForeignKey(
        "organizations.Workspace",
        models.CASCADE,
        related_name="+",
        db_index=False,
        db_constraint=False,
    )
    created_at = models.DateTimeField(default=timezone.now)
    organization_id = models.UUIDField()
    """Of the workspace: workers take turns between organizations."""
    rule = models.ForeignKey(
        EvaluatorRule, models.CASCADE, related_name="evaluations", db_index=False
    )
    is_code = models.BooleanField(default=False)
    """Whether the evaluator is a function: those have workers of their own."""
    queued_at = models.DateTimeField(null=True)
    """When the run was put in the rule's queue: once, also if someone removes it from there."""
    run_id = models.UUIDField()
    project_id = models.UUIDField()
    example_id = models.UUIDField(null=True)
    status = models.CharField(
        max_length=10, choices=EvaluationStatus, default=EvaluationStatus.PENDING
    )
    attempt = models.PositiveIntegerField(default=0)
    earlier_attempts = models.PositiveIntegerField(default=0)
    """Those before the evaluation was last asked for: tokens are never used twice."""
    due_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    backfill_id = models.UUIDField(null=True)
    """The backfill that asked for it; null for a run that was selected when it changed."""
    judge_run_id = models.UUIDField(null=True)
    """The recorded run of the judge, in the project `evaluators`."""
    scores = models.JSONField(null=True)
    """The feedback of the last success: key, score, value, comment."""
    error = models.TextField(blank=True)
    cost = models.FloatField(null=True)
    """In dollars; null if the tokens or their prices are not known."""

    objects = TenantManager(EvaluationQuerySet)
    unscoped = EvaluationQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "run_id", "rule"], name="evaluation_once")
        ]
        indexes = [
            models.Index(fields=["rule", "-created_at", "-id"], name="evaluation_newest"),
            models.Index(
                fields=["workspace", "project_id", "status"], name="evaluation_of_project"
            ),
            models.Index(
                fields=["is_code", "organization_id", "due_at"],
                condition=Q(status__in=["pending", "running"]),
                name="evaluation_due_by_type",
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class EvaluatorSpend(WorkspaceOwned):
    """The calls of a rule on one day, in UTC. Kept after the evaluated runs are removed."""

    rule = models.ForeignKey(EvaluatorRule, models.CASCADE, related_name="spend", db_index=False)
    day = models.DateField()
    call_count = models.PositiveIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    """In dollars."""

    objects = TenantManager(EvaluatorSpendQuerySet)
    unscoped = EvaluatorSpendQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["rule", "day"], name="evaluator_spend_once"),
        ]
        indexes = [models.Index(fields=["workspace", "day"], name="evaluator_spend_by_day")]

    def __str__(self) -> str:
        return f"{self.rule_id} {self.day}"


class BackfillStatus(models.TextChoices):
    """The values are part of the API."""

    RUNNING = "running"
    COMPLETED = "completed"
    """All of its runs were found; their evaluations may wait."""
    CANCELLED = "cancelled"
    FAILED = "failed"


class RuleBackfill(WorkspaceOwned):
    """Applies a rule to the runs of a time range, newest first, a page at a time."""

    rule = models.ForeignKey(
        EvaluatorRule, models.CASCADE, related_name="backfills", db_index=False
    )
    started_from = models.DateTimeField()
    started_until = models.DateTimeField()
    """Of the runs' start times, inclusive."""
    status = models.CharField(max_length=10, choices=BackfillStatus, default=BackfillStatus.RUNNING)
    cursor = models.TextField(blank=True)
    reached_at = models.DateTimeField(null=True)
    """The start time of the last run that was looked at."""
    run_count = models.PositiveIntegerField(default=0)
    """Runs that the rule applies to."""
    error = models.TextField(blank=True)
    ended_at = models.DateTimeField(null=True)
    created_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")

    objects = TenantManager(RuleBackfillQuerySet)
    unscoped = RuleBackfillQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["rule"], condition=Q(status="running"), name="rule_backfill_once"
            )
        ]
        indexes = [
            models.Index(fields=["workspace"], name="rule_backfill_of_workspace"),
            models.Index(fields=["rule", "-created_at"], name="rule_backfill_newest"),
            models.Index(
                fields=["created_at"], condition=Q(status="running"), name="rule_backfill_running"
            ),
        ]

    def __str__(self) -> str:
        return str(self.pk)

    @property
    def progress(self) -> float:
        """The share of the range that was looked at, from 0 to 1."""
        if self.status == BackfillStatus.COMPLETED:
            return 1.0
        if self.reached_at is None:
            return 0.0
        span = self.started_until - self.started_from
        return min(1.0, max(0.0, (self.started_until - self.reached_at) / span))


class CodeTrial(WorkspaceOwned):
    """A function that someone tries on one run or example before it is saved.

    It is run once by a worker, and deleted when its result was read, or after an hour.
    """

    organization_id = models.UUIDField()
    name = models.CharField(max_length=200)
    """The feedback key of a result without one."""
    code = models.TextField()
    run_id = models.UUIDField(null=True)
    """Null for the example."""
    dataset = models.ForeignKey(
        Dataset, models.CASCADE, null=True, related_name="+", db_index=False
    )
    """Of the example, its newest."""
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    scores = models.JSONField(null=True)
    output = models.TextField(blank=True)
    error = models.TextField(blank=True)

    objects = TenantManager(CodeTrialQuerySet)
    unscoped = CodeTrialQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        indexes = [
            models.Index(fields=["workspace"], name="code_trial_of_workspace"),
            models.Index(fields=["dataset"], name="code_trial_of_dataset"),
        ]

    def __str__(self) -> str:
        return str(self.pk)
