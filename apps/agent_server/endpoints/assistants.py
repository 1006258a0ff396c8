"""Endpoints of assistants: versioned graph configurations."""

from __future__ import annotations

from uuid import UUID

from apps.agent_server.endpoints.endpoint import EndpointGroup, json_response, page_response
from apps.agent_server.endpoints.serializers import assistant_json, select_fields, version_json
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.assistants import (
    AssistantChanges,
    AssistantCount,
    AssistantSearch,
    DeleteAssistantQuery,
    LatestVersion,
    NewAssistant,
    VersionSearch,
)
from apps.agent_server.services import assistant_changes, assistants
from apps.agent_server.web.http_context import NO_CONTENT, HttpRequestContext, Response
from apps.organizations.permissions import Permission

endpoints = EndpointGroup("assistants")


@endpoints.post("/assistants", response=responses.Assistant)
def create_assistant(context: HttpRequestContext, body: NewAssistant) -> Response:
    """Create an assistant: a graph with its own settings."""
    scope, body = context.admission.authorize("assistants", "create", body)
    return json_response(assistant_json(assistant_changes.create(scope, body)))


@endpoints.post(
    "/assistants/search",
    permission=Permission.AGENTS_READ,
    runs_on_loop=True,
    response=list[responses.SomeOfAssistant],
)
def search_assistants(context: HttpRequestContext, body: AssistantSearch) -> Response:
    """List a page of assistants, newest first by default."""
    scope, body = context.admission.authorize("assistants", "search", body)
    page, has_more = assistants.search(scope, body)
    rows = [select_fields(assistant_json(assistant), body.select) for assistant in page]
    return page_response(rows, body.offset, has_more=has_more)


@endpoints.post("/assistants/count", permission=Permission.AGENTS_READ, response=int)
def count_assistants(context: HttpRequestContext, body: AssistantCount) -> Response:
    """Count assistants."""
    scope, body = context.admission.authorize("assistants", "search", body)
    return json_response(assistants.count(scope, body))


@endpoints.get("/assistants/{assistant_id}", response=responses.Assistant)
def get_assistant(context: HttpRequestContext, assistant_id: UUID) -> Response:
    """Get an assistant as of its active version."""
    scope = context.admission.resolve_scope("assistants", "read", **context.path_params)
    return json_response(assistant_json(assistants.get(scope, assistant_id)))


@endpoints.patch("/assistants/{assistant_id}", response=responses.Assistant)
def update_assistant(
    context: HttpRequestContext, assistant_id: UUID, body: AssistantChanges
) -> Response:
    """Change an assistant, which creates a new version.

    `metadata` is merged; `config` and `context` are replaced.
    """
    scope, body = context.admission.authorize("assistants", "update", body, **context.path_params)
    return json_response(assistant_json(assistant_changes.update(scope, assistant_id, body)))


@endpoints.delete("/assistants/{assistant_id}")
def delete_assistant(
    context: HttpRequestContext, assistant_id: UUID, query: DeleteAssistantQuery
) -> Response:
    """Delete an assistant with all its versions.

    `delete_threads` also deletes the threads whose latest run it executed.
    """
    scope = context.admission.resolve_scope("assistants", "delete", **context.path_params)
    threads_scope = None
    if query.delete_threads:
        threads_scope = context.admission.resolve_scope("threads", "delete")
    assistant_changes.delete(scope, assistant_id, threads_scope=threads_scope)
    return NO_CONTENT


@endpoints.post(
    "/assistants/{assistant_id}/versions",
    permission=Permission.AGENTS_READ,
    response=list[responses.AssistantVersion],
)
def list_versions(context: HttpRequestContext, assistant_id: UUID, body: VersionSearch) -> Response:
    """List a page of an assistant's versions, newest first."""
    scope = context.admission.resolve_scope("assistants", "read", **context.path_params)
    assistant, versions = assistants.list_versions(scope, assistant_id, body)
    return json_response([version_json(assistant, version) for version in versions])


@endpoints.post("/assistants/{assistant_id}/latest", response=responses.Assistant)
def set_latest_version(
    context: HttpRequestContext, assistant_id: UUID, body: LatestVersion
) -> Response:
    """Make one of an assistant's versions the active one."""
    scope, body = context.admission.authorize("assistants", "update", body, **context.path_params)
    assistant = assistant_changes.set_latest(scope, assistant_id, body.version)
    return json_response(assistant_json(assistant))
