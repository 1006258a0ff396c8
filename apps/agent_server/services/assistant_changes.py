"""Creation, change and deletion of assistants. Every change creates a version."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import Max

from apps.agent_server import errors
from apps.agent_server.models import Assistant, AssistantVersion, Cron
from apps.agent_server.querysets import AssistantVersionQuerySet
from apps.agent_server.schemas.assistants import AssistantChanges, NewAssistant
from apps.agent_server.scope import Scope
from apps.agent_server.services import assistants, delete_threads, threads
from apps.core.tenancy import check_row_limit

MAX_ASSISTANTS = 10_000
MAX_VERSIONS = 1_000


def create(scope: Scope, body: NewAssistant) -> Assistant:
    """Create the assistant. `if_exists` decides between the existing row and `AssistantExists`.

    An id of a row that the caller may not see raises `AssistantExists` in either case.
    """
    assistants.ensure_system_assistants(scope.route)
    _check_graph(scope, body.graph_id)
    config, context = body.mirrored({}, {})
    assistant = Assistant(
        workspace_id=scope.route.workspace_id,
        deployment_id=scope.route.deployment_id,
        assistant_id=body.assistant_id or uuid4(),
        graph_id=body.graph_id,
        name=body.name,
        description=body.description,
        config=config,
        context=context,
        metadata=body.metadata,
    )
    if _insert(scope, assistant):
        return assistant
    existing = assistants.queryset_for(scope).filter(assistant_id=assistant.assistant_id).first()
    if existing is None or body.if_exists == "raise":
        raise errors.AssistantExists(assistant.assistant_id)
    return existing


@transaction.atomic
def _insert(scope: Scope, assistant: Assistant) -> bool:
    """Insert the row; return False if its id exists (by the unique constraint)."""
    Assistant.unscoped.bulk_create([assistant], ignore_conflicts=True)
    if not Assistant.unscoped.filter(pk=assistant.pk).exists():
        return False
    rows = assistants.queryset_for(scope.unfiltered())
    check_row_limit(rows, MAX_ASSISTANTS, "assistants of a deployment")
    AssistantVersion.from_assistant(assistant).save(force_insert=True)
    return True


@transaction.atomic
def update(scope: Scope, assistant_id: UUID, body: AssistantChanges) -> Assistant:
    """Create a version with these changes and make it the active one."""
    assistant = _lock_assistant(scope, assistant_id)
    if body.graph_id is not None and body.graph_id != assistant.graph_id:
        _check_graph(scope, body.graph_id)
        if assistant_id == assistants.system_assistant_id(assistant.graph_id):
            raise errors.SystemAssistant(assistant.graph_id)
        assistant.graph_id = body.graph_id
    assistant.config, assistant.context = body.mirrored(assistant.config, assistant.context)
    assistant.metadata = {**assistant.metadata, **body.metadata}
    if body.name is not None:
        assistant.name = body.name
    if body.description is not None:
        assistant.description = body.description
    highest = _versions(assistant).aggregate(highest=Max("version"))["highest"]
    assistant.version = (highest or 0) + 1
    assistant.save()
    AssistantVersion.from_assistant(assistant).save(force_insert=True)
    check_row_limit(_versions(assistant), MAX_VERSIONS, "versions of an assistant")
    return assistant


@transaction.atomic
def set_latest(scope: Scope, assistant_id: UUID, number: int) -> Assistant:
    """Make an earlier version the active one."""
    assistant = _lock_assistant(scope, assistant_id)
    version = _versions(assistant).filter(version=number).first()
    if version is None:
        raise errors.AssistantNotFound("version", number)
    for name in AssistantVersion.FIELDS:
        setattr(assistant, name, getattr(version, name))
    assistant.version = number
    assistant.save()
    return assistant


def delete(scope: Scope, assistant_id: UUID, *, threads_scope: Scope | None) -> None:
    """Delete the assistant with its versions and crons.

    With `threads_scope`, also delete the threads in that scope whose last run used the assistant.
    Threads are deleted before the assistant, so an interrupted request can be repeated.
    """
    assistants.get(scope, assistant_id)
    if assistant_id in {assistants.system_assistant_id(name) for name in scope.route.graph_ids}:
        raise errors.SystemAssistant(assistants.get(scope, assistant_id).graph_id)
    if threads_scope is not None:
        _delete_threads(threads_scope, assistant_id)
    with transaction.atomic():
        assistant = _lock_assistant(scope, assistant_id)
        crons = Cron.objects.for_workspace(scope.route.workspace_id)
        crons.for_deployment(scope.route.deployment_id).filter(assistant_id=assistant_id).delete()
        assistant.delete()


def _delete_threads(scope: Scope, assistant_id: UUID) -> None:
    assistant_threads = threads.queryset_for(scope).filter(
        metadata__contains={"assistant_id": str(assistant_id)}
    )
    delete_threads.delete_rows(list(assistant_threads.values_list("pk", flat=True)))


def _lock_assistant(scope: Scope, assistant_id: UUID) -> Assistant:
    """The assistant, locked: version numbers are assigned under this lock."""
    rows = assistants.available_queryset_for(scope).select_for_update(of=("self",))
    assistant = rows.filter(assistant_id=assistant_id).first()
    if assistant is None:
        raise errors.AssistantNotFound(reference=assistant_id)
    return assistant


def _versions(assistant: Assistant) -> AssistantVersionQuerySet:
    rows = AssistantVersion.objects.for_workspace(assistant.workspace_id)
    return rows.filter(assistant=assistant)


def _check_graph(scope: Scope, graph_id: str) -> None:
    if graph_id not in scope.route.graph_ids:
        raise errors.GraphNotFound(graph_id, scope.route.graph_ids)
