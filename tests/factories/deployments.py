from __future__ import annotations

from typing import Any

import factory

from apps.core.secrets import encrypt
from apps.deployments.models import Deployment, DeploymentWebhook, LogKind, LogLine, Revision
from apps.organizations.models import Workspace
from tests.factories.base import UnscopedFactory
from tests.factories.organizations import WorkspaceFactory


class DeploymentFactory(UnscopedFactory[Deployment]):
    """A deployment without revisions."""

    class Meta:
        model = Deployment

    workspace = factory.SubFactory(WorkspaceFactory)
    name = factory.Sequence(lambda n: f"deployment-{n}")
    slug = factory.SelfAttribute("name")
    repo_url = "https://git.example/agent.git"


class RevisionFactory(UnscopedFactory[Revision]):
    class Meta:
        model = Revision

    deployment = factory.SubFactory(DeploymentFactory)
    workspace = factory.SelfAttribute("deployment.workspace")
    number = factory.Sequence(lambda n: n + 1)
    repo_url = factory.SelfAttribute("deployment.repo_url")
    config_path = "langgraph.json"


class LogLineFactory(UnscopedFactory[LogLine]):
    class Meta:
        model = LogLine

    revision = factory.SubFactory(RevisionFactory)
    deployment = factory.SelfAttribute("revision.deployment")
    workspace = factory.SelfAttribute("revision.workspace")
    kind = LogKind.BUILD
    message = factory.Sequence(lambda n: f"line {n}")


def create_deployment_webhook(
    workspace: Workspace, *, url: str = "https://ci.example/hook", **fields: Any
) -> DeploymentWebhook:
    webhook = DeploymentWebhook(
        workspace=workspace, url=url, secret=encrypt("whsec_AAAA"),
        **{"events": ["revision.deployed"], **fields},
    )  # fmt: skip
    webhook.headers = {}
    webhook.save(force_insert=True)
    return webhook
