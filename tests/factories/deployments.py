from __future__ import annotations

import factory

from apps.deployments.models import Deployment, LogKind, LogLine, Revision
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
