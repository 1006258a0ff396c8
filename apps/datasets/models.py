"""Datasets, their versions, and the revisions of their examples.

A dataset is versioned by time: an example is a chain of revisions, each valid from one version to
another, so that the state at any time is one range of an index (docs/adr/0030).
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from apps.core.tenancy import TenantManager, WorkspaceOwned, WorkspaceOwnedUnchecked
from apps.core.vectors import VectorField
from apps.core.verbatim_json import VerbatimJSONField
from apps.datasets.querysets import (
    DatasetQuerySet,
    DatasetShareQuerySet,
    DatasetTagQuerySet,
    DatasetVersionQuerySet,
    ExampleIndexQuerySet,
    ExampleRevisionQuerySet,
    IndexedExampleQuerySet,
)

NAME_LENGTH = 1000
TAG_LENGTH = 200


class DataType(models.TextChoices):
    """The kind of examples; the values are on the wire."""

    KEY_VALUE = "kv", "Key-value"
    LLM = "llm", "LLM"
    CHAT = "chat", "Chat"


class Dataset(WorkspaceOwned):
    """A named collection of examples."""

    created_at = models.DateTimeField(default=timezone.now)
    """The time that the client sent, or the server time if it sent none."""
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.TextField(null=True)  # noqa: DJ001  (null and "" differ on the wire)
    data_type = models.CharField(max_length=10, choices=DataType, default=DataType.KEY_VALUE)
    extra = models.JSONField(default=dict)
    """Data attached by the client; its `metadata` is the dataset's metadata."""
    inputs_schema = models.JSONField(null=True)
    """JSON Schema of the inputs of every example."""
    outputs_schema = models.JSONField(null=True)
    transformations = models.JSONField(null=True)
    """List of objects with `path` and `transformation_type`, applied before validation."""
    externally_managed = models.BooleanField(default=False)
    baseline_experiment_id = models.UUIDField(null=True)
    """The experiment that others are compared with."""
    example_count = models.PositiveIntegerField(default=0)
    """The number of examples in the latest version."""
    latest_version_at = models.DateTimeField()
    """The time of the latest version. Locking this row serializes the writes of examples."""
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True)
    """The time of deletion. A task removes the row after a delay, until then it can be restored."""

    objects = TenantManager(DatasetQuerySet)
    unscoped = DatasetQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "name"],
                condition=Q(deleted_at=None),
                name="dataset_name_once",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "-created_at", "-id"], name="dataset_newest"),
            models.Index(
                fields=["deleted_at"],
                condition=Q(deleted_at__isnull=False),
                name="dataset_deleted",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def metadata(self) -> Any:
        return self.extra.get("metadata")


class DatasetVersion(WorkspaceOwned):
    """The state of a dataset after one write; `as_of` is its name on the wire."""

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="versions", db_index=False)
    as_of = models.DateTimeField()
    added_count = models.PositiveIntegerField(default=0, db_default=0)
    """The number of revisions that it wrote and that were not erased."""

    objects = TenantManager(DatasetVersionQuerySet)
    unscoped = DatasetVersionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["dataset", "as_of"], name="dataset_version_once")
        ]
        indexes = [
            models.Index(fields=["workspace", "dataset"], name="dataset_version_of_workspace")
        ]

    def __str__(self) -> str:
        return f"{self.dataset_id} as of {self.as_of.isoformat()}"


class DatasetTag(WorkspaceOwned):
    """A name of one version, which can move to another version."""

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="tags", db_index=False)
    name = models.CharField(max_length=TAG_LENGTH)
    as_of = models.DateTimeField()
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(DatasetTagQuerySet)
    unscoped = DatasetTagQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "dataset", "name"], name="dataset_tag_once"
            )
        ]
        indexes = [models.Index(fields=["dataset"], name="dataset_tag_of_dataset")]

    def __str__(self) -> str:
        return self.name


class ExampleRevision(WorkspaceOwnedUnchecked):
    """The content of an example from the version `valid_from` until before `valid_to`.

    The revision without `valid_to` is the current one. `example_id` identifies the example; `id`
    only the row. A million revisions are written at once, so they have no foreign key constraints:
    the deletion of a dataset removes its revisions before its row.
    """

    dataset = models.ForeignKey(
        Dataset, models.CASCADE, related_name="revisions", db_index=False, db_constraint=False
    )
    example_id = models.UUIDField()
    created_at = models.DateTimeField(default=timezone.now)
    """The creation time of the example, the same in all its revisions."""
    valid_from = models.DateTimeField()
    """The version that wrote the revision; `modified_at` on the wire."""
    valid_to = models.DateTimeField(null=True)
    """The version that replaced or deleted it; null for the current revision."""
    position = models.PositiveIntegerField(default=0)
    """The place among the examples that one version wrote."""
    inputs = VerbatimJSONField()
    outputs = VerbatimJSONField(null=True)
    metadata = models.JSONField(default=dict)
    """`dataset_split` in it lists the splits of the example."""
    splits = ArrayField(models.TextField(), default=list)
    """A copy of the splits, for the index."""
    attachments = models.JSONField(null=True)
    """List of objects with `name`, `path` in object storage, `mime_type` and `size`."""
    attachment_bytes = models.BigIntegerField(default=0, db_default=0)
    """The size of those attachments that an earlier revision does not have."""
    source_run_id = models.UUIDField(null=True)
    source_session_id = models.UUIDField(null=True)
    source_trace_id = models.UUIDField(null=True)
    source_run_start_time = models.DateTimeField(null=True)

    objects = TenantManager(ExampleRevisionQuerySet)
    unscoped = ExampleRevisionQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "example_id"],
                condition=Q(valid_to=None),
                name="example_current_once",
            )
        ]
        indexes = [
            models.Index(fields=["workspace", "example_id", "-valid_from"], name="example_history"),
            # Reads as of a time: a range of `valid_from`, whose superseded rows the included
            # columns skip without the heap.
            models.Index(
                fields=["workspace", "dataset", "-valid_from", "position", "example_id"],
                include=["valid_to", "splits"],
                name="example_as_of",
            ),
            models.Index(
                fields=["workspace", "dataset", "-valid_from", "position", "example_id"],
                include=["splits"],
                condition=Q(valid_to=None),
                name="example_current",
            ),
            models.Index(
                fields=["workspace", "dataset", "valid_to"],
                include=["valid_from", "example_id"],
                condition=Q(valid_to__isnull=False),
                name="example_ended",
            ),
            models.Index(
                fields=["workspace", "source_run_id"],
                condition=Q(source_run_id__isnull=False, valid_to=None),
                name="example_of_run",
            ),
        ]

    def __str__(self) -> str:
        return str(self.example_id)


class DatasetShare(WorkspaceOwned):
    """A public link to the latest version of a dataset."""

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="shares", db_index=False)
    token = models.UUIDField(unique=True, default=uuid4)
    """The link's secret."""
    with_experiments = models.BooleanField(default=False, db_default=False)
    """Whether the link also shows the experiments on the dataset with their statistics."""

    objects = TenantManager(DatasetShareQuerySet)
    unscoped = DatasetShareQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "dataset"], name="dataset_share_once")
        ]
        indexes = [models.Index(fields=["dataset"], name="dataset_share_of_dataset")]

    def __str__(self) -> str:
        return str(self.dataset_id)


class ExampleIndex(WorkspaceOwned):
    """The few-shot index of a dataset, which follows a tag."""

    dataset = models.ForeignKey(Dataset, models.CASCADE, related_name="+", db_index=False)
    tag = models.CharField(max_length=TAG_LENGTH)
    indexed_version_at = models.DateTimeField(null=True)
    """The indexed version; null before the first."""
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantManager(ExampleIndexQuerySet)
    unscoped = ExampleIndexQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        verbose_name_plural = "example indexes"
        constraints = [
            models.UniqueConstraint(fields=["workspace", "dataset"], name="example_index_once")
        ]
        indexes = [models.Index(fields=["dataset"], name="example_index_of_dataset")]

    def __str__(self) -> str:
        return f"{self.dataset_id}: {self.tag}"


class IndexedExample(WorkspaceOwned):
    """The vector of an example's inputs."""

    dataset = models.ForeignKey(
        Dataset, models.CASCADE, related_name="+", db_index=False, db_constraint=False
    )
    example_id = models.UUIDField()
    embedding = VectorField()

    objects = TenantManager(IndexedExampleQuerySet)
    unscoped = IndexedExampleQuerySet.as_manager()

    class Meta:
        base_manager_name = "unscoped"
        constraints = [
            models.UniqueConstraint(
                fields=["workspace", "dataset", "example_id"], name="indexed_example_once"
            )
        ]

    def __str__(self) -> str:
        return str(self.example_id)
