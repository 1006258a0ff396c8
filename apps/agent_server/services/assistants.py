"""Reads of assistants, and creation of each graph's system assistant.

Other changes are in `assistant_changes`.
"""
# ruff: noqa: S608  (the pieces are constants of this module)

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from django.db import transaction
from django.db.models import Max, Q

from apps.agent_server import errors, prepared_sql
from apps.agent_server.models import Assistant, AssistantVersion
from apps.agent_server.querysets import AssistantQuerySet
from apps.agent_server.schemas.assistants import AssistantCount, AssistantSearch, VersionSearch
from apps.agent_server.scope import Scope
from apps.core.json import Fragment, dumps, storable
from apps.deployments.models import RevisionGraph
from apps.deployments.routes import Route

NAMESPACE = UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8")
"""The namespace of system assistant ids; defined by the protocol, not by RFC 9562."""
SYSTEM_METADATA = {"created_by": "system"}
_ensured_revisions: dict[UUID, UUID] = {}
"""The revision of each deployment whose system assistants exist."""


class AssistantRow(NamedTuple):
    """An assistant as clients see it; JSON columns as PostgreSQL wrote them."""

    assistant_id: UUID
    graph_id: str
    name: str
    description: str | None
    config: Fragment
    context: Fragment
    metadata: Fragment
    version: int
    created_at: datetime
    updated_at: datetime


_JSON = frozenset({"config", "context", "metadata"})
_COLUMNS = ", ".join(f"{n}::text" if n in _JSON else n for n in AssistantRow._fields)
# Hides system assistants of graphs that the active revision lacks.
_PRESENT = """NOT (metadata @> '{"created_by": "system"}' AND graph_id <> ALL(%s))"""


def system_assistant_id(graph_id: str) -> UUID:
    """The id of a graph's system assistant, which is the same in every deployment."""
    return uuid5(NAMESPACE, graph_id)


def ensure_system_assistants(route: Route) -> None:
    """Create the system assistants of the active revision, once per process. Idempotent."""
    revision_id = route.active_revision_id
    if revision_id is None:
        raise errors.AgentNotReady
    if _ensured_revisions.get(route.deployment_id) != revision_id:
        _create_system_assistants(route, revision_id)
        _ensured_revisions[route.deployment_id] = revision_id


@transaction.atomic
def _create_system_assistants(route: Route, revision_id: UUID) -> None:
    graphs = RevisionGraph.objects.for_workspace(route.workspace_id).filter(revision=revision_id)
    descriptions = dict(graphs.values_list("graph_id", "description"))
    Assistant.unscoped.bulk_create(
        [
            Assistant(
                workspace_id=route.workspace_id,
                deployment_id=route.deployment_id,
                assistant_id=system_assistant_id(graph_id),
                graph_id=graph_id,
                name=graph_id,
                description=description or None,
                metadata=SYSTEM_METADATA,
            )
            for graph_id, description in sorted(descriptions.items())
        ],
        ignore_conflicts=True,
    )
    rows = queryset_for(Scope(route)).filter(
        assistant_id__in=[system_assistant_id(name) for name in descriptions]
    )
    unchanged = [
        row for row in rows.annotate(highest=Max("versions__version")) if _is_unchanged(row)
    ]
    for assistant in unchanged:
        description = descriptions[assistant.graph_id] or None
        if assistant.description != description:  # the new revision has another description
            assistant.description = description
            assistant.save(update_fields=["description"])
    AssistantVersion.unscoped.bulk_create(
        [AssistantVersion.from_assistant(assistant) for assistant in unchanged],
        update_conflicts=True,
        unique_fields=["workspace", "assistant", "version"],
        update_fields=["description"],
    )


def _is_unchanged(assistant: Any) -> bool:
    """Whether the assistant has its first version only."""
    return assistant.highest in {None, 1}


def resolve_id(scope: Scope, name_or_id: str) -> UUID:
    """Resolve a run's `assistant_id`, which is a UUID or the name of a graph."""
    if name_or_id in scope.route.graph_ids:
        return system_assistant_id(name_or_id)
    try:
        return UUID(name_or_id)
    except ValueError:
        raise errors.UnknownGraph(name_or_id, scope.route.graph_ids) from None


def queryset_for(scope: Scope) -> AssistantQuerySet:
    """The assistants of the agent that the caller may see."""
    rows = Assistant.objects.for_workspace(scope.route.workspace_id)
    return rows.for_deployment(scope.route.deployment_id).with_metadata(scope.visible)


def available_queryset_for(scope: Scope) -> AssistantQuerySet:
    """`queryset_for` without system assistants of graphs that the active revision lacks.

    Assistants that users created stay visible without their graph.
    """
    ensure_system_assistants(scope.route)
    graph_removed = Q(metadata__contains=SYSTEM_METADATA) & ~Q(graph_id__in=scope.route.graph_ids)
    return queryset_for(scope).exclude(graph_removed)


def get(scope: Scope, assistant_id: UUID) -> Assistant:
    assistant = available_queryset_for(scope).filter(assistant_id=assistant_id).first()
    if assistant is None:
        raise errors.AssistantNotFound(reference=assistant_id)
    return assistant


def search(scope: Scope, body: AssistantSearch) -> tuple[list[AssistantRow], bool]:
    """One page of assistants, and whether there are more."""
    where, parameters = _search_condition(scope, body)
    order = "DESC" if body.sort_order == "desc" else "ASC"
    statement = f"""SELECT {_COLUMNS} FROM agent_server_assistant WHERE {where}
        ORDER BY "{body.sort_by}" {order}, id {order} LIMIT %s OFFSET %s"""
    rows = prepared_sql.fetch_rows(statement, [*parameters, body.limit + 1, body.offset])
    page = [_as_row(row) for row in rows]
    return page[: body.limit], len(page) > body.limit


def _as_row(row: tuple[Any, ...]) -> AssistantRow:
    fields = zip(AssistantRow._fields, row, strict=True)
    return AssistantRow._make(Fragment(v.encode()) if n in _JSON else v for n, v in fields)


def count(scope: Scope, body: AssistantCount) -> int:
    where, parameters = _search_condition(scope, body)
    row = prepared_sql.fetch_row(
        f"SELECT count(*) FROM agent_server_assistant WHERE {where}", parameters
    )
    return row[0] if row is not None else 0


def list_versions(
    scope: Scope, assistant_id: UUID, body: VersionSearch
) -> tuple[Assistant, list[AssistantVersion]]:
    """The assistant and a page of its versions, newest first."""
    assistant = get(scope, assistant_id)
    versions = AssistantVersion.objects.for_workspace(scope.route.workspace_id)
    versions = versions.filter(assistant=assistant).order_by("-version")
    if body.metadata:
        versions = versions.filter(metadata__contains=body.metadata)
    return assistant, list(versions[body.offset : body.offset + body.limit])


def _search_condition(scope: Scope, body: AssistantCount) -> tuple[str, list[Any]]:
    """The SQL condition of a search and its parameters."""
    ensure_system_assistants(scope.route)
    where = f"workspace_id = %s AND deployment_id = %s AND {_PRESENT}"
    conditions: list[tuple[str, Any]] = []
    if scope.visible != "{}":
        conditions.append(("metadata @> %s::jsonb", scope.visible))
    if body.metadata:
        conditions.append(("metadata @> %s::jsonb", storable(dumps(body.metadata)).decode()))
    if body.graph_id is not None:
        conditions.append(("graph_id = %s", body.graph_id))
    if body.name:
        conditions.append(("strpos(upper(name), upper(%s)) > 0", body.name))
    for condition, _ in conditions:
        where += f" AND {condition}"
    parameters = [*scope.key, list(scope.route.graph_ids)]
    return where, [*parameters, *(value for _, value in conditions)]


class GraphRecord(NamedTuple):
    """A graph as its build recorded it."""

    graph: RevisionGraph
    config: dict[str, Any] | None
    """The assistant's configuration, if a graph factory may build a different graph from it."""


def get_graph(scope: Scope, text: str) -> GraphRecord:
    """The graph with this name, or of the assistant with this id."""
    ensure_system_assistants(scope.route)
    graph_id, config = text, None
    if text not in scope.route.graph_ids:
        assistant = get(scope, _parse_uuid(text))
        graph_id = assistant.graph_id
        config = assistant.config if assistant.context else None
    graphs = RevisionGraph.objects.for_workspace(scope.route.workspace_id)
    graph = graphs.filter(revision=scope.route.active_revision_id, graph_id=graph_id).first()
    if graph is None:
        raise errors.GraphGone(graph_id)
    return GraphRecord(graph, config)


def _parse_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise errors.InvalidId("assistant") from None
