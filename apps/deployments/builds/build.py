"""Build and deploy one revision."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.json import dumps, loads, storable
from apps.deployments import errors, hosts, langgraph_json
from apps.deployments.build_dirs import FileNotReadable, remove_revision
from apps.deployments.builds import build_facts, clone, python_version, venv
from apps.deployments.builds.build_context import BuildContext, BuildFailed
from apps.deployments.builds.host_client import HostCallFailed, HostCallTimedOut, HostClient
from apps.deployments.models import Revision, RevisionGraph, Source
from apps.deployments.routes import STUDIO_USER
from apps.deployments.sandbox.usage import disk_usage
from apps.deployments.services import build_storage, build_turns, progress
from apps.deployments.services.logs import RevisionLog
from apps.deployments.statuses import RevisionStatus

log = logging.getLogger(__name__)


def build(revision_id: UUID) -> None:
    """Build and deploy the revision, or one of another organization whose turn it is.

    Safe to repeat and to run concurrently. A failure is stored in the revision; the active revision
    keeps serving.
    """
    owner = f"{socket.gethostname()}:{os.getpid()}"
    revision = build_turns.claim_next(revision_id, owner=owner)
    if revision is None:
        return
    try:
        _build_and_deploy(revision)
    except Exception:
        if _exists(revision):
            raise
        log.info("revision %s was deleted during its build", revision.pk)
        remove_revision(revision.pk)
    finally:
        build_turns.wake_builder()


def _exists(revision: Revision) -> bool:
    return Revision.objects.for_workspace(revision.workspace_id).filter(pk=revision.pk).exists()


def _build_and_deploy(revision: Revision) -> None:
    lines = RevisionLog(
        workspace_id=revision.workspace_id,
        deployment_id=revision.deployment_id,
        revision_id=revision.pk,
    )
    with lines:
        context = BuildContext(revision, lines)
        try:
            if revision.status == RevisionStatus.BUILDING:
                _build(context)
            _deploy(context)
        except BuildFailed as failure:
            _fail(context, str(failure))
        except (errors.LeaseLost, errors.InvalidTransition):
            lines.write("The build of this revision was stopped.", level="WARNING")
        except Exception:
            if not _exists(revision):
                raise
            log.exception("build of revision %s failed", revision.pk)
            _fail(
                context,
                "Internal error of the platform. The operator can find the details in its log.",
            )
    build_storage.remove_old_builds(revision.workspace_id)
    progress.promote_next(revision.deployment_id)


def _build(context: BuildContext) -> None:
    revision = context.revision
    context.directory.create()
    if revision.source != Source.GIT:
        raise BuildFailed("Only revisions with a Git source can be built.")
    with context.step(f"Cloning {revision.repo_url} {revision.ref}".rstrip()):
        commit = clone.clone(context, repo_url=revision.repo_url, ref=revision.ref)
    project = _read_project(context)
    variables = build_facts.read_server_variables(context, project)
    _save_source(context, commit=commit, config=project.raw)
    python = python_version.choose_version(context, project)
    # Hosts start with it, also those of this build.
    build_facts.save_facts(context, {"python_version": python})
    venv.create_venv(context, project, python)
    with context.step("Importing the graphs"):
        graphs, other_facts = _describe_graphs(context, project)
    facts = {"variables": variables, "python_version": python, **other_facts}
    build_facts.save_facts(context, facts)
    _save_graphs(context, graphs)
    context.advance(RevisionStatus.AWAITING_DEPLOY, built_attempt=revision.attempt)
    context.directory.remove_older()


def _read_project(context: BuildContext) -> langgraph_json.ProjectConfig:
    path = context.revision.config_path
    context.log.write(f"==> Reading {path}")
    try:
        project = langgraph_json.parse(
            context.directory.read_text(path), path=path, file_type=context.directory.file_type
        )
    except (langgraph_json.ConfigError, FileNotReadable) as error:
        raise BuildFailed(str(error)) from None
    for warning in project.warnings:
        context.log.write(f"    {warning}", level="WARNING")
    return project


def _save_source(
    context: BuildContext, *, commit: clone.ClonedCommit, config: dict[str, object]
) -> None:
    """Store commit and configuration, or raise `LeaseLost`."""
    revisions = Revision.objects.for_workspace(context.revision.workspace_id)
    updated = revisions.filter(pk=context.revision.pk, attempt=context.revision.attempt).update(
        commit_sha=commit.sha,
        commit_subject=commit.subject,
        config=loads(storable(dumps(config))),
    )
    if not updated:
        raise errors.LeaseLost


def _describe_graphs(
    context: BuildContext, project: langgraph_json.ProjectConfig
) -> tuple[list[RevisionGraph], dict[str, Any]]:
    """Return the graphs as their hosts describe them, and the other facts of the project."""
    remaining, graphs, hello = list(project.graphs), [], None
    while hello is None or remaining:
        with _launch_host(context, context.revision.attempt) as host:
            client = HostClient(context, host)
            is_first, hello = hello is None, client.handshake()
            if is_first:
                versions = f"Python {hello['python']}, LangGraph {hello['langgraph']}"
                context.log.write(f"    {versions}")
            while remaining:
                graph_id = remaining.pop(0)
                try:
                    graphs.append(_describe_graph(context, project, client, graph_id))
                except HostCallTimedOut as error:
                    # The graph may block its host, so the next one needs another.
                    graphs.append(_build_graph(context, project, graph_id, problem=str(error)))
                    break
    facts = build_facts.project_facts(context, project, hello)
    return graphs, facts | {"disk_bytes": disk_usage([context.directory.folder])}


def _describe_graph(
    context: BuildContext, project: langgraph_json.ProjectConfig, client: HostClient, graph_id: str
) -> RevisionGraph:
    """Return the graph with its schemas and drawing, as far as it can be built now.

    A factory may need a configuration that only a request has, or a service that a build does not
    reach. What is missing is made on request.
    """
    # A graph factory that takes a user gets one if the project has authentication.
    params = {"user": STUDIO_USER} if project.sections.auth else {}
    try:
        description = client.call(graph_id, "describe", params)
    except HostCallTimedOut:
        raise
    except HostCallFailed as error:
        return _build_graph(context, project, graph_id, problem=str(error))
    description = loads(storable(dumps(description)))
    drawing, problem = description["drawing"] or {}, description.get("problem")
    if problem is None:
        nodes = [str(node.get("id")) for node in drawing["nodes"]]
        context.log.write(f"    {graph_id}: {', '.join(nodes)}")
    return _build_graph(
        context, project, graph_id, description["schemas"], drawing, problem=problem
    )


def _build_graph(
    context: BuildContext,
    project: langgraph_json.ProjectConfig,
    graph_id: str,
    schemas: dict[str, Any] | None = None,
    drawing: dict[str, Any] | None = None,
    *,
    problem: str | None = None,
) -> RevisionGraph:
    """Return the unsaved row; a problem with its description is a warning in the build log."""
    if problem is not None:
        missing = "drawing is" if schemas else "schemas and drawing are"
        reason = f"made on request, because the build could not: {problem}"
        context.log.write(f"    {graph_id}: its {missing} {reason}", level="WARNING")
    return RevisionGraph(
        workspace_id=context.revision.workspace_id,
        revision_id=context.revision.pk,
        graph_id=graph_id,
        description=project.descriptions.get(graph_id, ""),
        schemas=schemas or {},
        drawing=drawing or {},
    )


@transaction.atomic
def _save_graphs(context: BuildContext, graphs: list[RevisionGraph]) -> None:
    rows = RevisionGraph.objects.for_workspace(context.revision.workspace_id)
    rows.filter(revision=context.revision).delete()
    RevisionGraph.unscoped.bulk_create(graphs)


def _deploy(context: BuildContext) -> None:
    """Check that a host starts, then activate the revision."""
    if context.revision.status == RevisionStatus.AWAITING_DEPLOY:
        context.advance(RevisionStatus.DEPLOYING)
    with (
        context.step("Starting the agent"),
        _launch_host(context, context.revision.built_attempt) as host,
    ):
        HostClient(context, host).handshake()
    # The status and the last line are stored together: a reader of a finished revision has it all.
    with transaction.atomic():
        progress.activate(context.revision)
        context.log.write(f"Deployed: revision {context.revision.number} is active.")
        context.log.flush()


def _launch_host(context: BuildContext, attempt: int | None) -> hosts.LaunchedHost:
    try:
        return hosts.launch(context.revision.pk, attempt=attempt)
    except hosts.LaunchFailed as error:
        raise BuildFailed(str(error)) from None


def _fail(context: BuildContext, reason: str) -> None:
    context.log.write(reason, level="ERROR")
    context.log.flush()
    try:
        progress.fail(context.revision, reason=reason, attempt=context.revision.attempt)
    except (errors.LeaseLost, errors.InvalidTransition):
        return
    if context.revision.built_attempt is None:
        # Only the log of a failed build is kept.
        remove_revision(context.revision.pk)
