"""Chainable queries of assistants, threads and agent runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar
from uuid import UUID

from django.db import models

from apps.agent_server.statuses import OPEN
from apps.core.json import loads

if TYPE_CHECKING:
    from apps.agent_server.models import (  # noqa: F401
        A2APushConfig,
        A2ATask,
        AgentRun,
        Assistant,
        AssistantVersion,
        Cron,
        StoreItem,
        Thread,
        UnreportedAttempt,
        WebhookDelivery,
        WebhookSecret,
    )
    from apps.deployments.models import Deployment


Row = TypeVar("Row", bound=models.Model)


class DeploymentRows(models.QuerySet[Row]):
    """Rows of a deployment with metadata."""

    def for_deployment(self, deployment: Deployment | UUID) -> Self:
        return self.filter(deployment=deployment)

    def with_metadata(self, visible: str) -> Self:
        """Rows whose metadata contains this JSON."""
        return self if visible == "{}" else self.filter(metadata__contains=loads(visible))


class AssistantQuerySet(DeploymentRows["Assistant"]):
    pass


class AssistantVersionQuerySet(models.QuerySet["AssistantVersion"]):
    pass


class CronQuerySet(DeploymentRows["Cron"]):
    pass


class ThreadQuerySet(DeploymentRows["Thread"]):
    def for_deployment(self, deployment: Deployment | UUID) -> Self:
        """The deployment's threads that clients may see."""
        return self.filter(deployment=deployment, temporary=False)


class AgentRunQuerySet(models.QuerySet["AgentRun"]):
    def unfinished(self) -> AgentRunQuerySet:
        """Pending or running."""
        return self.filter(status__in=sorted(OPEN))


class A2ATaskQuerySet(models.QuerySet["A2ATask"]):
    pass


class A2APushConfigQuerySet(models.QuerySet["A2APushConfig"]):
    pass


class UnreportedAttemptQuerySet(models.QuerySet["UnreportedAttempt"]):
    pass


class StoreItemQuerySet(models.QuerySet["StoreItem"]):
    pass


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    pass


class WebhookSecretQuerySet(models.QuerySet["WebhookSecret"]):
    pass
