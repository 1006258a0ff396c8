"""Rows that an engine reads, as the web process creates them, and their execution."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

from apps.agent_runtime.engine_thread import EngineThread
from apps.agent_server.models import AgentRun, Thread
from apps.deployments.models import Deployment, Revision
from apps.organizations.models import Workspace
from tests.factories.organizations import WorkspaceFactory


def make_revision(workspace: Workspace | None = None) -> Revision:
    workspace = workspace or WorkspaceFactory()
    name = f"agent-{uuid4().hex[:8]}"
    deployment = Deployment(workspace=workspace, name=name, slug=name)
    deployment.save()
    revision = Revision(
        workspace=workspace, deployment=deployment, number=1, config_path="langgraph.json"
    )
    revision.save()
    deployment.active_revision = revision
    deployment.save()
    return revision


def make_thread(revision: Revision, **fields: Any) -> Thread:
    thread = Thread(
        workspace=revision.workspace,
        deployment=revision.deployment,
        revision=revision,
        **{"thread_id": uuid4(), "status": "busy", **fields},
    )
    thread.save(force_insert=True)
    return thread


def make_run(thread: Thread, graph_id: str, *, sequence: int = 1, **fields: Any) -> AgentRun:
    kwargs = {"input": None, "stream_mode": ["values"], **fields.pop("kwargs", {})}
    run = AgentRun(
        workspace=thread.workspace,
        deployment=thread.deployment,
        thread=thread,
        assistant_id=uuid4(),
        graph_id=graph_id,
        revision=thread.revision,
        sequence=sequence,
        kwargs=kwargs,
        **fields,
    )
    run.save(force_insert=True)
    return run


def let_continue(file: Path) -> None:
    """Let the runs of the graph `steps` that wait for this file continue."""
    file.with_name(f"{file.name}.go").touch()


def execute(engine: EngineThread, thread: Thread) -> None:
    """Let the engine claim the next run of the thread."""
    engine.call(engine.engine.claim_or_queue, thread.pk)
