from __future__ import annotations

from typing import Any

import factory
from factory.django import DjangoModelFactory

from apps.deployments.models import Deployment, LogKind, LogLine, Revision
from tests.factories.organizations import WorkspaceFactory


class DeploymentFactory(DjangoModelFactory[Deployment]):
    """A deployment without revisions."""

    class Meta:
        model = Deployment

    workspace = factory.SubFactory(WorkspaceFactory)
    name = factory.Sequence(lambda n: f"deployment-{n}")
    slug = factory.SelfAttribute("name")
    repo_url = "https://git.example/agent.git"

    @classmethod
    def _get_manager(cls, model_class: type[Deployment]) -> Any:
        return model_class.unscoped


class RevisionFactory(DjangoModelFactory[Revision]):
    class Meta:
        model = Revision

    deployment = factory.SubFactory(DeploymentFactory)
    workspace = factory.SelfAttribute("deployment.workspace")
    number = factory.Sequence(lambda n: n + 1)
    repo_url = factory.SelfAttribute("deployment.repo_url")
    config_path = "langgraph.json"

    @classmethod
    def _get_manager(cls, model_class: type[Revision]) -> Any:
        return model_class.unscoped


class LogLineFactory(DjangoModelFactory[LogLine]):
    class Meta:
        model = LogLine

    revision = factory.SubFactory(RevisionFactory)
    deployment = factory.SelfAttribute("revision.deployment")
    workspace = factory.SelfAttribute("revision.workspace")
    kind = LogKind.BUILD
    message = factory.Sequence(lambda n: f"line {n}")

    @classmethod
    def _get_manager(cls, model_class: type[LogLine]) -> Any:
        return model_class.unscoped
