"""The workspace of another tenant with one row of each kind, each marked `sentinel`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from apps.agent_server.models import A2ATask
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
from tests.factories.alerts import create_alert_rows
from tests.factories.annotation import create_queue_rows
from tests.factories.datasets import create_dataset_rows
from tests.factories.deployments import LogLineFactory, create_deployment_webhook
from tests.factories.evaluators import create_evaluator_rows
from tests.factories.experiment_jobs import create_job_row
from tests.factories.experiments import create_comparison_row
from tests.factories.exports import create_export_part
from tests.factories.monitoring import ChartFactory, OrganizationChartFactory, SectionFactory
from tests.factories.organizations import WorkspaceFactory, create_marked_rows
from tests.factories.playground import create_playground_rows
from tests.factories.prompts import create_prompt_rows
from tests.tenant_fixtures import DATASET, EXAMPLE, create_tracing_rows
from tests.tenant_fixtures_related import (
    create_agent_rows,
    create_organization_rows,
    create_span_rows,
)

PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")


@dataclass(frozen=True)
class OtherTenant:
    """The rows of the other tenant, and the paths that lead to them."""

    workspace: Workspace

    @classmethod
    def make(cls) -> OtherTenant:
        tenant = cls(
            WorkspaceFactory(name="sentinel", handle="sentinel", organization__name="sentinel")
        )
        tenant.values  # noqa: B018  (the first access creates the rows)
        return tenant

    @cached_property
    def values(self) -> dict[str, object]:
        """A value for each route parameter."""
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
        create_agent_rows(agent, run, item, "sentinel")
        LogLineFactory(revision=agent.active_revision, message="sentinel")
        tracing_rows = create_tracing_rows(self.workspace, "sentinel", "sentinel")
        part = create_export_part(Project.unscoped.get(pk=tracing_rows["project_id"]), "sentinel")
        chart = ChartFactory(
            section=SectionFactory(workspace=self.workspace, title="sentinel"), title="sentinel"
        )
        organization_chart = OrganizationChartFactory(
            section__organization=self.workspace.organization,
            section__title="sentinel",
            title="sentinel",
        )
        organization_rows = create_marked_rows(self.workspace, "sentinel")
        create_organization_rows(self.workspace, "sentinel")
        create_span_rows(self.workspace, "sentinel")
        dataset_rows = create_dataset_rows(
            self.workspace, "sentinel", "sentinel", dataset_id=DATASET, example_id=EXAMPLE
        )
        return {
            **organization_rows,
            **create_prompt_rows(self.workspace, "sentinel"),
            **create_playground_rows(self.workspace, "sentinel"),
            **create_alert_rows(Project.unscoped.get(pk=tracing_rows["project_id"]), "sentinel"),
            "deployment_webhook_id": create_deployment_webhook(
                self.workspace, url="https://sentinel.example/"
            ).pk,
            "section_id": chart.section.pk,
            "chart_id": chart.pk,
            "organization_section_id": organization_chart.section.pk,
            "organization_chart_id": organization_chart.pk,
            "workspace_id": self.workspace.pk,
            "slug": agent.slug,
            "deployment_id": agent.pk,
            "revision_id": agent.active_revision.pk,
            "thread_id": thread.thread_id,
            **tracing_rows,
            **dataset_rows,
            **create_evaluator_rows(self.workspace, "sentinel", DATASET),
            **create_queue_rows(self.workspace, "sentinel", tracing_rows["run_id"]),
            "index": 0,
            "comparison_id": create_comparison_row(self.workspace, "sentinel", dataset_id=DATASET),
            "job_id": create_job_row(agent, "sentinel", dataset_id=DATASET, example_id=EXAMPLE),
            "token": UUID(int=2),  # an invalid token: valid ones are public by design
            "agent_run_id": run.pk,
            "task_id": A2ATask.unscoped.get(run_id=run.pk).pk,
            "config_id": "sentinel",
            "assistant_id": system_assistant_id("agent"),
            "cron_id": CronFactory(deployment=agent, metadata={"a": "sentinel"}).pk,
            "destination_id": part.export.destination_id,
            "export_id": part.export_id,
            "part_id": part.pk,
            "checkpoint_id": UUID(int=1),
            # Guessed values of mail links and sessions of other users.
            "key": "guessed",
            "secret_name": "GUESSED",
            "uidb36": "1",
            "session_id": 1,
            "provider_id": "oidc",
            "namespace": "sub",
            "payload": "inputs",
            "number": 0,
            "export_format": "csv",
            "import_id": UUID(int=3),  # no import runs
            "limit_id": _create_limit(self.workspace),
        }

    def path(self, route: str) -> str:
        """Return the path of a route with the ids of the other tenant."""
        values = dict(self.values)
        if route.startswith("/agents/"):
            values["run_id"] = values["agent_run_id"]
        return PARAMETER.sub(lambda match: str(values[match[1]]), route)


def _create_limit(workspace: Workspace) -> UUID:
    """Create a usage limit and an audit entry in the other tenant."""
    limit = set_limit(
        organization_id=workspace.organization_id,
        workspace_id=workspace.pk,
        limit_type=LimitType.MONTHLY_RUNS,
        limit_value=10**15,
    )
    record(Action.PROJECT_DELETED, Target("project", "", "sentinel"), workspace_id=workspace.pk)
    return limit.pk
