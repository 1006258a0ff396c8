"""Runs experiments on deployed agents: each step is a stateless run of an assistant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction
from django.db.models import TextField
from django.db.models.functions import Cast
from django.utils import timezone

from apps.agent_server import errors as agent_errors
from apps.agent_server.models import AgentRun, Thread
from apps.agent_server.schemas.runs import RunBody
from apps.agent_server.scope import Scope, graph_context_for
from apps.agent_server.services import assistants, cancel_runs, runs
from apps.agent_server.services.runs import TraceParent
from apps.agent_server.statuses import OPEN, RunStatus
from apps.core.json import dumps, loads_exact
from apps.deployments import routes
from apps.deployments.models import Deployment
from apps.deployments.routes import STUDIO_USER
from apps.experiment_jobs import errors
from apps.experiment_jobs.dotted_orders import step_dotted_order
from apps.experiment_jobs.models import ExperimentJob, ExperimentStep
from apps.experiment_jobs.runners import ExperimentRunEnd, PreparedTarget, RunnerBusy


def prepare_agent(deployment: Deployment, assistant: str | None) -> PreparedTarget:
    """Check the deployment and find its assistant.

    `assistant` is an id or the name of a graph; None for the deployment's only graph. Raises the
    errors of an agent that does not serve or lacks the assistant.
    """
    if deployment.is_stopped:
        raise agent_errors.AgentStopped
    scope = scope_of(deployment)
    assistant_id = _find_assistant(scope, assistant)
    return PreparedTarget(
        name=deployment.name,
        metadata={
            "deployment_id": str(deployment.pk),
            "deployment_name": deployment.name,
            "revision_id": str(scope.route.active_revision_id),
            "assistant_id": str(assistant_id),
        },
        deployment=deployment,
        assistant_id=assistant_id,
    )


def scope_of(deployment: Deployment) -> Scope:
    """Return the scope of the deployment's agent for the platform's own runs.

    Custom authentication sees the user that platform members are. Raises `NoSuchAgent`,
    `AgentNotReady`, and `PlatformUsersRefused`.
    """
    route = None if deployment.deleted_at else routes.find_route(deployment.slug)
    if route is None or route.deployment_id != deployment.pk:
        raise agent_errors.NoSuchAgent
    if route.active_revision_id is None:
        raise agent_errors.AgentNotReady
    auth = route.serving.auth
    if auth is None:
        return Scope(route)
    if auth.disable_studio_auth:
        raise errors.PlatformUsersRefused
    return Scope(route, user=STUDIO_USER, graph_context=graph_context_for(STUDIO_USER))


def _find_assistant(scope: Scope, name_or_id: str | None) -> UUID:
    if name_or_id is None:
        if len(scope.route.graph_ids) != 1:
            raise agent_errors.UnknownGraph("", scope.route.graph_ids)
        name_or_id = scope.route.graph_ids[0]
    return assistants.get(scope, assistants.resolve_id(scope, name_or_id)).assistant_id


class AgentRunner:
    """The runner of jobs on a deployment."""

    def check(self, job: ExperimentJob) -> bool:
        if job.deployment is None:
            raise agent_errors.NoSuchAgent
        try:
            scope_of(job.deployment)
        except agent_errors.AgentNotReady:
            return False
        return not job.deployment.is_stopped

    def start(self, job: ExperimentJob, step: ExperimentStep, inputs: dict[str, Any]) -> UUID:
        assert job.deployment is not None  # noqa: S101  (`check`)
        body = RunBody(
            assistant_id=str(job.assistant_id),
            input=inputs,
            metadata={"experiment_id": str(job.experiment_id), "example_id": str(step.example_id)},
            # The result is read before the thread is deleted.
            on_completion="keep",
        )
        parent = TraceParent(step_dotted_order(step), job.experiment.name)
        try:
            with transaction.atomic():
                scope = scope_of(job.deployment)
                return runs.create_stateless(scope, body, trace_parent=parent).run_id
        except agent_errors.QueueFull:
            raise RunnerBusy from None

    def find_ended(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> list[UUID]:
        agent_runs = AgentRun.objects.for_workspace(job.workspace_id).filter(pk__in=run_ids)
        statuses = dict(agent_runs.values_list("pk", "status"))
        return [run_id for run_id in run_ids if statuses.get(run_id) not in OPEN]

    def read_ends(
        self, job: ExperimentJob, run_ids: Sequence[UUID]
    ) -> dict[UUID, ExperimentRunEnd]:
        agent_runs = AgentRun.objects.for_workspace(job.workspace_id).filter(pk__in=run_ids)
        rows = agent_runs.values_list(
            "pk", "status", "error", "ended_at", "thread_id",
            Cast("thread__values", TextField()), Cast("thread__interrupts", TextField()),
        )  # fmt: skip
        ends = {row[0]: _build_end(row[1:]) for row in rows}
        deleted = ExperimentRunEnd(error="The agent run was deleted before its result was read.")
        return {run_id: ends.get(run_id, deleted) for run_id in run_ids}

    def release(self, job: ExperimentJob, ends: Sequence[ExperimentRunEnd]) -> None:
        # As after stateless runs, the purge deletes them after the traces of lost hosts were
        # closed.
        threads = Thread.objects.for_workspace(job.workspace_id)
        threads.filter(pk__in=[end.thread for end in ends if end.thread is not None]).update(
            temporary=True, updated_at=timezone.now()
        )

    def stop(self, job: ExperimentJob, run_ids: Sequence[UUID]) -> None:
        route = None if job.deployment is None else routes.find_route(job.deployment.slug)
        if route is not None:  # else the runs were deleted with the deployment
            cancel_runs.cancel(Scope(route), "interrupt", run_ids=list(run_ids))

    def root_name(self, job: ExperimentJob) -> str:
        return job.deployment.name if job.deployment is not None else job.experiment.name


def _build_end(row: tuple[Any, ...]) -> ExperimentRunEnd:
    status, error, ended_at, thread, values, interrupts = row
    return ExperimentRunEnd(
        ended_at=ended_at,
        outputs=_build_outputs(values, interrupts),
        error=None if status == RunStatus.SUCCESS else _error_text(status, error),
        is_interrupted=status == RunStatus.INTERRUPTED,
        thread=thread,
    )


def _build_outputs(values: str | None, interrupts: str | None) -> msgspec.Raw:
    """Return the thread's values as an object, with `__interrupt__` as `wait` returns it."""
    if values is None:
        return msgspec.Raw(b"{}")
    waiting = [
        item for items in (loads_exact(interrupts or "null") or {}).values() for item in items
    ]
    if values.lstrip().startswith("{") and not waiting:
        return msgspec.Raw(values.encode())
    content = loads_exact(values)
    outputs = content if isinstance(content, dict) else {"output": content}
    if waiting:
        outputs["__interrupt__"] = waiting
    return msgspec.Raw(dumps(outputs))


def _error_text(status: str, error: dict[str, Any] | None) -> str:
    if not error:
        return f"The run ended with the status {status}."
    return f"{error.get('error', status)}: {error.get('message', '')}"
