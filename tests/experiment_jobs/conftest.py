from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.utils import timezone

from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.services import assistants, queue_limits
from apps.datasets.models import Dataset
from apps.deployments import routes
from apps.deployments.models import Deployment
from apps.experiment_jobs.models import ExperimentJob
from apps.experiment_jobs.services import execution
from apps.experiment_jobs.services.jobs import JobPlan, create_job
from apps.organizations.models import Workspace
from tests.factories.agent_server import AgentFactory, route_of
from tests.factories.datasets import make_dataset
from tests.tracing.conftest import api, make_api, objects, other_workspace, page

__all__ = ["api", "make_api", "objects", "other_workspace", "page"]


@pytest.fixture(autouse=True)
def clear_caches() -> Iterator[None]:
    yield
    routes.clear_cache()
    assistants._ensured_revisions.clear()
    queue_limits.clear_cache()


@pytest.fixture
def agent(workspace: Workspace) -> Deployment:
    """A deployment with the graph `agent`, whose runs the tests end themselves."""
    agent = AgentFactory(workspace=workspace, graphs=["agent"])
    route_of(agent)
    return agent


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    """A dataset with the questions 0, 1 and 2."""
    return make_dataset(workspace, *({"question": number} for number in range(3)), name="questions")


@pytest.fixture
def start(agent: Deployment, dataset: Dataset) -> Callable[..., ExperimentJob]:
    """Return a function that creates a job; keywords replace fields of its plan."""

    def start(**fields: Any) -> ExperimentJob:
        plan = JobPlan(**{"dataset": dataset, "deployment": agent, "concurrency": 10, **fields})
        return create_job(plan=plan, user_id=None)

    return start


def advance(job: ExperimentJob) -> None:
    """Advance the jobs of the job's organization once, and read the job again."""
    execution.advance_organization(job.workspace.organization_id)
    job.refresh_from_db()


def open_runs(job: ExperimentJob) -> list[AgentRun]:
    """The open agent runs of the job in the order of their creation."""
    rows = AgentRun.unscoped.filter(status__in=["pending", "running"])
    return list(
        rows.filter(metadata__experiment_id=str(job.experiment_id)).order_by("created_at", "pk")
    )


def end(run: AgentRun, status: str = "success", *, values: Any = None, **fields: Any) -> None:
    """End the run as an engine does, with the thread's values."""
    Thread.unscoped.filter(pk=run.thread_id).update(
        status="idle", values=values, interrupts=fields.pop("interrupts", {})
    )
    AgentRun.unscoped.filter(pk=run.pk).update(
        status=status, attempt=1, ended_at=timezone.now(), **fields
    )
