"""Checkpoints: opaque bytes of LangGraph, accessed through their thread only."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now

from apps.agent_server.models.threads import Thread


class Checkpoint(models.Model):
    """A thread's state as a graph saved it. Accessed through its thread only."""

    pk = models.CompositePrimaryKey("thread", "namespace", "checkpoint_id")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="checkpoints", db_index=False)
    namespace = models.TextField()
    checkpoint_id = models.UUIDField()
    parent_id = models.UUIDField(null=True)
    run_id = models.UUIDField(null=True)
    kind = models.CharField(max_length=20)
    """The serialiser's name for the bytes."""
    blob = models.BinaryField()
    """The checkpoint without the channel values, which are shared between checkpoints."""
    blob_versions = models.JSONField(default=dict)
    """The version of each channel whose value is a `CheckpointBlob`."""
    metadata = models.JSONField(default=dict)
    created_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return str(self.checkpoint_id)


class CheckpointBlob(models.Model):
    """The value of one channel at one version, shared by the checkpoints that refer to it."""

    pk = models.CompositePrimaryKey("thread", "namespace", "channel", "version")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="+", db_index=False)
    namespace = models.TextField()
    channel = models.TextField()
    version = models.TextField()
    kind = models.CharField(max_length=20)
    blob = models.BinaryField()

    def __str__(self) -> str:
        return f"{self.channel}@{self.version}"


class CheckpointWrite(models.Model):
    """A write of one task that is not part of a checkpoint yet."""

    pk = models.CompositePrimaryKey("thread", "namespace", "checkpoint_id", "task_id", "index")
    thread = models.ForeignKey(Thread, models.CASCADE, related_name="+", db_index=False)
    namespace = models.TextField()
    checkpoint_id = models.UUIDField()
    task_id = models.TextField()
    task_path = models.TextField(default="")
    index = models.IntegerField()
    channel = models.TextField()
    kind = models.CharField(max_length=20)
    blob = models.BinaryField()
    run_id = models.UUIDField(null=True)
    """The run that wrote it; a run that resumes an interrupt is later than the checkpoint's."""
    replaced = models.JSONField(null=True)
    """The write of an earlier run that this one replaced, for a rollback."""

    def __str__(self) -> str:
        return f"{self.task_id}:{self.channel}"
