"""Chainable queries of assistants, threads and agent runs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from django.db import models

from apps.agent_server.statuses import OPEN
from apps.core.json import loads

if TYPE_CHECKING:
    from apps.agent_server.models import (  # noqa: F401
        AgentRun,
        Assistant,
        AssistantVersion,
        Cron,
        StoreItem,
        Thread,
        WebhookDelivery,
        WebhookSecret,
    )
    from apps.deployments.models import Deployment


class AssistantQuerySet(models.QuerySet["Assistant"]):
    def of(self, deployment: Deployment | UUID) -> AssistantQuerySet:
        return self.filter(deployment=deployment)

    def with_metadata(self, visible: str) -> AssistantQuerySet:
        """Rows whose metadata contains this JSON."""
        return self if visible == "{}" else self.filter(metadata__contains=loads(visible))


class AssistantVersionQuerySet(models.QuerySet["AssistantVersion"]):
    pass


class CronQuerySet(models.QuerySet["Cron"]):
    def of(self, deployment: Deployment | UUID) -> CronQuerySet:
        return self.filter(deployment=deployment)

    def with_metadata(self, visible: str) -> CronQuerySet:
        """Rows whose metadata contains this JSON."""
        return self if visible == "{}" else self.filter(metadata__contains=loads(visible))


class ThreadQuerySet(models.QuerySet["Thread"]):
    def of(self, deployment: Deployment | UUID) -> ThreadQuerySet:
        """The deployment's threads that clients may see."""
        return self.filter(deployment=deployment, temporary=False)

    def with_metadata(self, visible: str) -> ThreadQuerySet:
        """Rows whose metadata contains this JSON."""
        return self if visible == "{}" else self.filter(metadata__contains=loads(visible))


class AgentRunQuerySet(models.QuerySet["AgentRun"]):
    def unfinished(self) -> AgentRunQuerySet:
        """Pending or running."""
        return self.filter(status__in=sorted(OPEN))


class StoreItemQuerySet(models.QuerySet["StoreItem"]):
    pass


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    pass


class WebhookSecretQuerySet(models.QuerySet["WebhookSecret"]):
    pass
