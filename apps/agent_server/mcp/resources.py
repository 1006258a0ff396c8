"""The threads of an agent as resources: `thread:///{thread_id}`, with the values of their state."""

from __future__ import annotations

from uuid import UUID

from apps.agent_server.auth.access import Admission
from apps.agent_server.errors import ThreadNotFound
from apps.agent_server.schemas.threads import ThreadSearch
from apps.agent_server.services import threads
from apps.core.json import dumps_text
from apps.core.mcp.messages import INVALID_PARAMS, RESOURCE_NOT_FOUND, JSONObject, RpcError

PAGE_SIZE = 50
MAX_OFFSET = 10_000
PREFIX = "thread:///"
MEDIA_TYPE = "application/json"
TEMPLATE: JSONObject = {
    "uriTemplate": f"{PREFIX}{{thread_id}}",
    "name": "thread",
    "title": "Thread",
    "description": "The values of a thread's state, with its status and open questions.",
    "mimeType": MEDIA_TYPE,
}


def list_page(admission: Admission, cursor: str | None) -> tuple[list[JSONObject], str | None]:
    """A page of the threads that the caller may see, the latest changed first."""
    offset = _parse_cursor(cursor)
    search = ThreadSearch(
        limit=PAGE_SIZE, offset=offset, select=["thread_id", "status", "updated_at"]
    )
    scope, search = admission.authorize("threads", "search", search)
    rows, has_more = threads.search(scope, search)
    next_offset = offset + PAGE_SIZE
    return [
        {
            "uri": f"{PREFIX}{row['thread_id']}",
            "name": str(row["thread_id"]),
            "description": f"A thread, {row['status']}, changed at {row['updated_at'].isoformat()}",
            "mimeType": MEDIA_TYPE,
        }
        for row in rows
    ], str(next_offset) if has_more and next_offset <= MAX_OFFSET else None


def read(admission: Admission, uri: str, *, is_stateless: bool) -> JSONObject:
    """The content of a thread. Raises `RpcError` if the caller may not see one with the URI."""
    try:
        thread_id = UUID(uri.removeprefix(PREFIX)) if uri.startswith(PREFIX) else None
        if thread_id is None:
            raise ValueError(uri)
        scope = admission.resolve_scope("threads", "read", thread_id=str(thread_id))
        row = threads.get(scope, thread_id)
    except (ValueError, ThreadNotFound):
        code = INVALID_PARAMS if is_stateless else RESOURCE_NOT_FOUND
        raise RpcError(code, "There is no such resource.", data={"uri": uri[:1000]}) from None
    head = dumps_text({"thread_id": thread_id, "status": row.status, "updated_at": row.updated_at})
    # The columns are JSON.
    columns = f',"values":{row.values or "null"},"interrupts":{row.interrupts or "{}"}}}'
    return {"uri": uri, "mimeType": MEDIA_TYPE, "text": f"{head[:-1]}{columns}"}


def _parse_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (
        cursor.isascii() and cursor.isdigit() and len(cursor) < 9 and int(cursor) <= MAX_OFFSET
    ):
        raise RpcError(INVALID_PARAMS, "cursor: must be the cursor of the previous page.")
    return int(cursor)
