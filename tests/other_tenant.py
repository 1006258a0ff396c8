"""Somebody else's workspace with a row of every kind, each marked with the word `sentinel`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from apps.agent_server.services.assistants import system_assistant_id
from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.organizations.models import Workspace
from apps.tracing.models import Project
from apps.usage.models import LimitType
from apps.usage.services import set_limit
from tests.factories.agent_server import (
    AgentFactory,
    AgentRunFactory,
    CronFactory,
    StoreItemFactory,
    ThreadFactory,
    WebhookDeliveryFactory,
    route_of,
)
from tests.factories.deployments import LogLineFactory
from tests.factories.exports import exported
from tests.factories.monitoring import ChartFactory, OrganizationChartFactory, SectionFactory
from tests.factories.organizations import WorkspaceFactory, people_of
from tests.tenant_fixtures import plant
from tests.tenant_fixtures_related import plant_beside_agents, plant_beside_people, plant_spans

PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True)
class Foreign:
    """The rows, and the addresses under which they can be found."""

    workspace: Workspace

    @classmethod
    def make(cls) -> Foreign:
        foreign = cls(WorkspaceFactory(name="sentinel", organization__name="sentinel"))
        foreign.values  # noqa: B018  (its rows are made at the first look)
        return foreign

    @cached_property
    def values(self) -> dict[str, object]:
        """A value for each parameter of a route."""
        agent = AgentFactory(
            workspace=self.workspace, name="sentinel", repo_url="https://git.example/sentinel"
        )
        route_of(agent)
        thread = ThreadFactory(
            deployment=agent, metadata={"a": "sentinel"}, values={"messages": ["sentinel"]}
        )
        run = AgentRunFactory(thread=thread, metadata={"a": "sentinel"})
        WebhookDeliveryFactory(agent_run=run, url="https://sentinel.example/")
        item = StoreItemFactory(deployment=agent, namespace=["sentinel"], value={"a": "sentinel"})
        plant_beside_agents(agent, run, item, "sentinel")
        LogLineFactory(revision=agent.active_revision, message="sentinel")
        planted = plant(self.workspace, "sentinel", "sentinel")
        part = exported(Project.unscoped.get(pk=planted["project_id"]), "sentinel")
        chart = ChartFactory(
            section=SectionFactory(workspace=self.workspace, title="sentinel"), title="sentinel"
        )
        wide = OrganizationChartFactory(
            section__organization=self.workspace.organization,
            section__title="sentinel",
            title="sentinel",
        )
        people = people_of(self.workspace, "sentinel")
        plant_beside_people(self.workspace, "sentinel")
        plant_spans(self.workspace, "sentinel")
        return {
            **people,
            "section_id": chart.section.pk,
            "chart_id": chart.pk,
            "organization_section_id": wide.section.pk,
            "organization_chart_id": wide.pk,
            "workspace_id": self.workspace.pk,
            "slug": agent.slug,
            "deployment_id": agent.pk,
            "revision_id": agent.active_revision.pk,
            "thread_id": thread.thread_id,
            **planted,
            "token": UUID(int=2),  # one that opens nothing: those that do are open to all
            "agent_run_id": run.pk,
            "assistant_id": system_assistant_id("agent"),
            "cron_id": CronFactory(deployment=agent, metadata={"a": "sentinel"}).pk,
            "destination_id": part.export.destination_id,
            "export_id": part.export_id,
            "part_id": part.pk,
            "checkpoint_id": UUID(int=1),
            # What a mail's link or a stranger's session would be, guessed.
            "key": "guessed",
            "uidb36": "1",
            "session_id": 1,
            "provider_id": "oidc",
            "namespace": "sub",
            "payload": "inputs",
            "number": 0,
            "limit_id": _limit_of(self.workspace),
        }

    def path(self, route: str) -> str:
        """The route's address with the foreign ids in it."""
        values = dict(self.values)
        if route.startswith("/agents/"):
            values["run_id"] = values["agent_run_id"]
        return PARAMETER.sub(lambda match: str(values[match[1]]), route)


def _limit_of(workspace: Workspace) -> UUID:
    """A cap, and the audit log's word of it, in an organization that is called `sentinel`."""
    limit = set_limit(
        organization_id=workspace.organization_id,
        workspace_id=workspace.pk,
        limit_type=LimitType.MONTHLY_RUNS,
        limit_value=10**15,
    )
    record(Action.PROJECT_DELETED, Target("project", "", "sentinel"), workspace_id=workspace.pk)
    return limit.pk
