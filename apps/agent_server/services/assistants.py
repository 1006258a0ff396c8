"""Assistants: those that every graph has by itself, and finding them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models import Q, QuerySet

from apps.agent_server import errors
from apps.agent_server.bodies.assistants import AssistantCount, AssistantSearch
from apps.agent_server.models import Assistant, AssistantVersion
from apps.agent_server.querysets import AssistantQuerySet
from apps.agent_server.scope import Scope
from apps.core.tenancy import get_or_404
from apps.deployments.models import RevisionGraph
from apps.deployments.routes import Route

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The protocol's own, close to the well-known ones and none of them."""
MADE_BY_SYSTEM = {"created_by": "system"}
_met: set[UUID] = set()


def system_id(graph_id: str) -> UUID:
    """The id of a graph's own assistant: the same in every deployment, as clients expect."""
    return uuid5(NAMESPACE, graph_id)


def ensure_system(route: Route) -> None:
    """Make the assistants of the active revision's graphs, once per process. Safe to repeat."""
    revision_id = route.active_revision_id
    if revision_id is None:
        raise errors.AgentNotReady
    if revision_id not in _met:
        _make_system(route, revision_id)
        _met.add(revision_id)


@transaction.atomic
def _make_system(route: Route, revision_id: UUID) -> None:
    graphs = RevisionGraph.objects.for_workspace(route.workspace_id).filter(revision=revision_id)
    descriptions = dict(graphs.values_list("graph_id", "description"))
    Assistant.unscoped.bulk_create(
        [
            Assistant(
                workspace_id=route.workspace_id,
                deployment_id=route.deployment_id,
                assistant_id=system_id(graph_id),
                graph_id=graph_id,
                name=graph_id,
                description=description or None,
                metadata=MADE_BY_SYSTEM,
            )
            for graph_id, description in sorted(descriptions.items())
        ],
        ignore_conflicts=True,
    )
    made = of(Scope(route)).filter(assistant_id__in=[system_id(name) for name in descriptions])
    AssistantVersion.unscoped.bulk_create(
        [version_of(assistant) for assistant in made if assistant.version == 1],
        ignore_conflicts=True,
    )


def version_of(assistant: Assistant) -> AssistantVersion:
    """The version row that says what the assistant is now."""
    return AssistantVersion(
        workspace_id=assistant.workspace_id,
        assistant=assistant,
        version=assistant.version,
        graph_id=assistant.graph_id,
        name=assistant.name,
        description=assistant.description,
        config=assistant.config,
        context=assistant.context,
        metadata=assistant.metadata,
    )


def resolve(scope: Scope, text: str) -> UUID:
    """The assistant that a run's `assistant_id` means: a UUID, or a graph's name."""
    if text in scope.route.graph_ids:
        return system_id(text)
    try:
        return UUID(text)
    except ValueError:
        raise errors.UnknownGraph(text, scope.route.graph_ids) from None


def of(scope: Scope) -> AssistantQuerySet:
    """The assistants of the agent that the caller may see."""
    rows = Assistant.objects.for_workspace(scope.route.workspace_id)
    return rows.of(scope.route.deployment_id).within(scope.visible)


def get(scope: Scope, assistant_id: UUID) -> Assistant:
    ensure_system(scope.route)
    assistant = of(scope).filter(assistant_id=assistant_id).first()
    if assistant is None:
        raise errors.AssistantNotFound
    return assistant


def search(scope: Scope, body: AssistantSearch) -> tuple[list[Assistant], bool]:
    """One page of assistants, and whether there are more."""
    sign = "-" if body.sort_order == "desc" else ""
    found = _matching(scope, body).order_by(f"{sign}{body.sort_by}", f"{sign}id")
    page = list(found[body.offset : body.offset + body.limit + 1])
    return page[: body.limit], len(page) > body.limit


def count(scope: Scope, body: AssistantCount) -> int:
    return _matching(scope, body).count()


def _matching(scope: Scope, body: AssistantCount) -> QuerySet[Assistant]:
    ensure_system(scope.route)
    gone = Q(metadata__contains=MADE_BY_SYSTEM) & ~Q(graph_id__in=scope.route.graph_ids)
    found = of(scope).exclude(gone)
    if body.metadata:
        found = found.filter(metadata__contains=body.metadata)
    if body.graph_id is not None:
        found = found.filter(graph_id=body.graph_id)
    if body.name:
        found = found.filter(name__icontains=body.name)
    return found


def graph_of(scope: Scope, text: str) -> RevisionGraph:
    """What was recorded of the graph of an assistant, or of the graph of that name."""
    ensure_system(scope.route)
    graph_id = text if text in scope.route.graph_ids else get(scope, _uuid(text)).graph_id
    graphs = RevisionGraph.objects.for_workspace(scope.route.workspace_id)
    return get_or_404(graphs, revision=scope.route.active_revision_id, graph_id=graph_id)


def schemas_of(graph: RevisionGraph) -> Mapping[str, Any]:
    return {"graph_id": graph.graph_id, **graph.schemas}


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.InvalidId("assistant") from None
