"""From a waiting revision to one that serves."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any
from uuid import UUID

from django.db import transaction

from apps.core.json import dumps, loads, storable
from apps.deployments import errors, hosts, langgraph_json
from apps.deployments.build_dirs import Unreadable, remove_revision
from apps.deployments.builds import build_facts, clone, source, venv
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed
from apps.deployments.builds.host_client import Conversation
from apps.deployments.models import Revision, RevisionGraph, Source
from apps.deployments.services import progress
from apps.deployments.services.logs import RevisionLog
from apps.deployments.serving import STUDIO_USER
from apps.deployments.statuses import RevisionStatus

log = logging.getLogger(__name__)


def build(revision_id: UUID) -> None:
    """Take the revision up where it is and bring it to its end. Safe to repeat and to race.

    A failure of the repository is kept in the revision; what served before goes on serving.
    """
    revision = progress.claim(revision_id, owner=f"{socket.gethostname()}:{os.getpid()}")
    if revision is None:
        return
    lines = RevisionLog(
        workspace_id=revision.workspace_id,
        deployment_id=revision.deployment_id,
        revision_id=revision.pk,
    )
    with lines:
        work = Work(revision, lines)
        try:
            if revision.status == RevisionStatus.BUILDING:
                _build(work)
            _deploy(work)
        except BuildFailed as failure:
            _fail(work, str(failure))
        except (errors.LeaseLost, errors.StepRefused):
            lines.write("The work on this revision was stopped.", level="WARNING")
        except Exception:
            log.exception("build of revision %s failed", revision_id)
            _fail(work, "Something went wrong inside the platform. Its operator finds it logged.")
    progress.promote(revision.deployment_id)


def _build(work: Work) -> None:
    revision = work.revision
    work.place.make()
    if revision.source != Source.GIT:
        raise BuildFailed("Only revisions from Git can be built.")
    with work.step(f"Cloning {revision.repo_url} {revision.ref}".rstrip()):
        commit = clone.clone(work, repo_url=revision.repo_url, ref=revision.ref)
    project = _project(work)
    facts = build_facts.of_variables(work, project)
    _remember(work, commit=commit, config=project.raw)
    venv.make(work, project)
    with work.step("Importing the graphs"):
        graphs, offered = _graphs(work, project)
    build_facts.keep(work, {"variables": facts, **offered})
    _keep_graphs(work, graphs)
    work.advance(RevisionStatus.AWAITING_DEPLOY, artefact=revision.attempt)
    work.place.remove_older()


def _project(work: Work) -> langgraph_json.Project:
    path = work.revision.config_path
    work.log.write(f"==> Reading {path}")
    try:
        project = langgraph_json.parse(work.place.read(path), path=path, kind=work.place.kind)
    except (langgraph_json.ConfigError, Unreadable) as error:
        raise BuildFailed(str(error)) from None
    for note in project.notes:
        work.log.write(f"    {note}", level="WARNING")
    return project


def _remember(work: Work, *, commit: source.Commit, config: dict[str, object]) -> None:
    """Keep what is being built, while the attempt is still ours."""
    revisions = Revision.objects.for_workspace(work.revision.workspace_id)
    kept = revisions.filter(pk=work.revision.pk, attempt=work.revision.attempt).update(
        commit_sha=commit.sha,
        commit_subject=commit.subject,
        config=loads(storable(dumps(config))),
    )
    if not kept:
        raise errors.LeaseLost


def _graphs(
    work: Work, project: langgraph_json.Project
) -> tuple[list[RevisionGraph], dict[str, Any]]:
    """The graphs as their host describes them, and what else the project's code offers."""
    graphs = []
    with _host(work, work.revision.attempt) as host:
        conversation = Conversation(work, host)
        greeting = conversation.greeting()
        work.log.write(f"    Python {greeting['python']}, LangGraph {greeting['langgraph']}")
        # A function that wants a user gets one wherever there is authentication; here it is us.
        asked = {"user": STUDIO_USER} if project.sections.auth else {}
        for graph_id in project.graphs:
            described = conversation.ask(graph_id, "describe", asked)
            described = loads(storable(dumps(described)))
            nodes = [str(node.get("id")) for node in described["drawing"]["nodes"]]
            work.log.write(f"    {graph_id}: {', '.join(nodes)}")
            graphs.append(
                RevisionGraph(
                    workspace_id=work.revision.workspace_id,
                    revision_id=work.revision.pk,
                    graph_id=graph_id,
                    description=project.descriptions.get(graph_id, ""),
                    schemas=described["schemas"],
                    drawing=described["drawing"],
                )
            )
        return graphs, build_facts.offered(work, project, greeting)


@transaction.atomic
def _keep_graphs(work: Work, graphs: list[RevisionGraph]) -> None:
    rows = RevisionGraph.objects.for_workspace(work.revision.workspace_id)
    rows.filter(revision=work.revision).delete()
    RevisionGraph.unscoped.bulk_create(graphs)


def _deploy(work: Work) -> None:
    """See a host start as it will, then let the revision serve."""
    if work.revision.status == RevisionStatus.AWAITING_DEPLOY:
        work.advance(RevisionStatus.DEPLOYING)
    with work.step("Starting the agent"), _host(work, work.revision.artefact) as host:
        Conversation(work, host).greeting()
    work.log.flush()
    progress.activate(work.revision)
    work.log.write(f"Deployed: revision {work.revision.number} serves from now on.")


def _host(work: Work, attempt: int | None) -> hosts.LaunchedHost:
    try:
        return hosts.launch(work.revision.pk, attempt=attempt)
    except hosts.NotLaunched as error:
        raise BuildFailed(str(error)) from None


def _fail(work: Work, reason: str) -> None:
    work.log.write(reason, level="ERROR")
    work.log.flush()
    try:
        progress.fail(work.revision, reason=reason, attempt=work.revision.attempt)
    except (errors.LeaseLost, errors.StepRefused):
        return
    if work.revision.artefact is None:
        # A failed build leaves nothing but its log.
        remove_revision(work.revision.pk)
