from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import factory
from django.utils import timezone

from apps.agent_server.models import (
    AgentRun,
    Checkpoint,
    Cron,
    StoreItem,
    Thread,
    WebhookDelivery,
)
from apps.agent_server.services.assistants import ensure_system_assistants, system_assistant_id
from apps.deployments import routes
from apps.deployments.models import Deployment, Revision, RevisionGraph
from apps.deployments.routes import Route
from apps.deployments.statuses import RevisionStatus
from apps.organizations.models import Workspace
from tests.factories.base import UnscopedFactory
from tests.factories.organizations import WorkspaceFactory


class AgentFactory(UnscopedFactory[Deployment]):
    """A deployment whose active revision has the graphs `agent` and `other`."""

    class Meta:
        model = Deployment
        skip_postgeneration_save = True

    workspace = factory.SubFactory(WorkspaceFactory)
    name = factory.Sequence(lambda n: f"agent-{n}")
    slug = factory.SelfAttribute("name")

    @factory.post_generation
    def graphs(self: Deployment, create: bool, names: Any) -> None:  # type: ignore[misc]  # noqa: FBT001
        revision = Revision.unscoped.create(
            workspace=self.workspace,
            deployment=self,
            number=1,
            config_path="langgraph.json",
            status=RevisionStatus.DEPLOYED,
        )
        for name in names or ("agent", "other"):
            RevisionGraph.unscoped.create(
                workspace=self.workspace,
                revision=revision,
                graph_id=name,
                description=f"What {name} does",
                schemas={"input_schema": {"title": name}},
                drawing={"nodes": [{"id": "__start__"}], "edges": []},
            )
        self.active_revision = revision
        self.save()


class ThreadFactory(UnscopedFactory[Thread]):
    class Meta:
        model = Thread

    deployment = factory.SubFactory(AgentFactory)
    workspace = factory.SelfAttribute("deployment.workspace")


class CheckpointFactory(factory.django.DjangoModelFactory[Checkpoint]):
    """A checkpoint without values."""

    class Meta:
        model = Checkpoint

    thread = factory.SubFactory(ThreadFactory)
    checkpoint_id = factory.LazyFunction(uuid4)
    kind = "msgpack"
    blob = b""
    blob_versions = factory.LazyFunction(dict)
    metadata = factory.LazyFunction(dict)


class AgentRunFactory(UnscopedFactory[AgentRun]):
    class Meta:
        model = AgentRun

    thread = factory.SubFactory(ThreadFactory)
    deployment = factory.SelfAttribute("thread.deployment")
    workspace = factory.SelfAttribute("thread.workspace")
    assistant_id = system_assistant_id("agent")
    graph_id = "agent"
    sequence = factory.Sequence(lambda n: n + 1)


class CronFactory(UnscopedFactory[Cron]):
    class Meta:
        model = Cron

    deployment = factory.SubFactory(AgentFactory)
    workspace = factory.SelfAttribute("deployment.workspace")
    assistant_id = system_assistant_id("agent")
    schedule = "0 0 1 1 *"
    payload = {"assistant_id": str(system_assistant_id("agent")), "schedule": "0 0 1 1 *"}
    next_run_date = datetime(2999, 1, 1, tzinfo=UTC)


class StoreItemFactory(UnscopedFactory[StoreItem]):
    class Meta:
        model = StoreItem

    deployment = factory.SubFactory(AgentFactory)
    workspace = factory.SelfAttribute("deployment.workspace")
    namespace = factory.LazyFunction(lambda: ["notes"])
    key = factory.Sequence(str)
    value = factory.LazyFunction(dict)


class WebhookDeliveryFactory(UnscopedFactory[WebhookDelivery]):
    class Meta:
        model = WebhookDelivery
        exclude = ("agent_run",)

    agent_run = factory.SubFactory(AgentRunFactory)
    workspace = factory.SelfAttribute("agent_run.workspace")
    deployment = factory.SelfAttribute("agent_run.deployment")
    run_id = factory.SelfAttribute("agent_run.pk")
    thread_id = factory.SelfAttribute("agent_run.thread.thread_id")
    url = "https://hooks.example/"
    run_created_at = factory.LazyFunction(timezone.now)
    run_ended_at = factory.LazyFunction(timezone.now)


def route_of(agent: Deployment) -> Route:
    """Return the agent's route, read anew, after its system assistants were created."""
    routes.clear_cache()
    route = routes.find_route(agent.slug)
    assert route is not None
    ensure_system_assistants(route)
    return route


def sibling_workspace(agent: Deployment) -> Workspace:
    """Another workspace of the same organization."""
    return WorkspaceFactory(organization=agent.workspace.organization)
