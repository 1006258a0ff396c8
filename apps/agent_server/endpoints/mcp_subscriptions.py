"""Streams that tell MCP clients which of their resources changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial

from apps.agent_server.endpoints.endpoint import Continuation, Result
from apps.agent_server.endpoints.mcp_calls import respond
from apps.agent_server.mcp import resources, subscriptions
from apps.agent_server.mcp.sessions import Session
from apps.agent_server.mcp.subscriptions import SessionSubscriptions
from apps.agent_server.scope import Scope
from apps.agent_server.streaming import sse
from apps.agent_server.streaming.hub import get_hub
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.core.ids import uuid7
from apps.core.mcp import messages
from apps.core.mcp.messages import META, JSONObject, McpMessage, RpcError
from apps.core.sync_bridge import in_thread
from apps.deployments import routes

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
OF_SESSIONS = (SUBSCRIBE, UNSUBSCRIBE)
LISTEN = "subscriptions/listen"
_SUBSCRIPTION_ID = META + "subscriptionId"
_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def change(
    context: HttpRequestContext, message: McpMessage, session: Session | None, uri: str
) -> Result:
    """Subscribe the session to a resource, or end its subscription."""
    if session is None:
        text = "A subscription belongs to a session: send `Mcp-Session-Id`."
        raise RpcError(messages.INVALID_REQUEST, text)
    versions: dict[str, str] = {}
    if message.method == SUBSCRIBE:
        if not subscriptions.is_subscribable(context.admission, uri):
            raise resources.not_found(uri, is_stateless=False)
        versions = subscriptions.read_versions(_scope_of(context), [uri])

    async def store(context: HttpRequestContext) -> Response:
        stored = SessionSubscriptions(get_hub(), session)
        try:
            if versions:
                await stored.add(uri, versions[uri])
            else:
                await stored.remove(uri)
        except RpcError as error:
            error.request_id = message.id
            return Response(error.as_json(), error.status)
        return respond(context, message, {})

    return store


def open_stream(context: HttpRequestContext, session: Session) -> Continuation:
    """The stream of a session, which a later stream of the same session ends."""
    scope = _scope_of(context)

    async def stream(context: HttpRequestContext) -> None:
        stored, stream_id = SessionSubscriptions(get_hub(), session), str(uuid7())
        await stored.set_stream(stream_id)

        async def read() -> dict[str, str] | None:
            state = await stored.read()
            return state.versions if state.stream == stream_id else None

        await _stream_changes(context, scope=scope, read=read, meta={})

    return stream


def listen(context: HttpRequestContext, message: McpMessage) -> Continuation:
    """The stream of a client without a session: first what it tells of, then the changes.

    Of what the client asks for, the platform tells of resources that the client may read.
    """
    context.admission.user()
    uris = _read_filter(message.params)
    honored = [uri for uri in uris if subscriptions.is_subscribable(context.admission, uri)]
    scope = _scope_of(context)
    versions = subscriptions.read_versions(scope, honored)
    meta = {"_meta": {_SUBSCRIPTION_ID: message.id}}
    notifications = {"resourceSubscriptions": honored} if honored else {}
    first = messages.encode_notification(_ACKNOWLEDGED, {"notifications": notifications, **meta})

    async def read() -> dict[str, str]:
        return versions

    return partial(_stream_changes, scope=scope, read=read, meta=meta, first=first)


def _read_filter(params: JSONObject) -> list[str]:
    """The addresses that a client wants to be told of."""
    wanted = params.get("notifications")
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    if not isinstance(wanted, dict) or not isinstance(uris, list | None):
        text = "notifications: must be an object, with a list of `resourceSubscriptions`."
        raise RpcError(messages.INVALID_PARAMS, text)
    uris = uris or []
    if not all(isinstance(uri, str) for uri in uris) or len(uris) > subscriptions.MAX_PER_CLIENT:
        text = f"resourceSubscriptions: at most {subscriptions.MAX_PER_CLIENT} addresses."
        raise RpcError(messages.INVALID_PARAMS, text)
    return list(dict.fromkeys(uris))


def _scope_of(context: HttpRequestContext) -> Scope:
    """The scope of the threads that the caller may see."""
    return context.admission.resolve_scope("threads", "search")


async def _stream_changes(
    context: HttpRequestContext,
    *,
    scope: Scope,
    read: Callable[[], Awaitable[dict[str, str] | None]],
    meta: JSONObject,
    first: bytes = b"",
) -> None:
    """Send a notification for each resource that changed since the last heartbeat.

    `read` returns the subscribed addresses with their versions at the time of the subscription, or
    None once the stream must end. `first` is the first message, `meta` belongs to each.
    """
    await context.start(*sse.HEADERS)
    if first:
        await context.write(sse.encode_event(b"message", first))
    known: dict[str, str] = {}
    beat = asyncio.Event()
    async with context.keep_alive(beat.set):
        while not context.must_end():
            subscribed = await read()
            if subscribed is None:
                break
            known = {uri: known.get(uri, version) for uri, version in subscribed.items()}
            versions = await in_thread(_read_now, scope, known) if known else {}
            changed = [uri for uri in known if versions[uri] != known[uri]]
            for uri in changed:
                frame = messages.encode_notification(_UPDATED, {"uri": uri, **meta})
                await context.write(sse.encode_event(b"message", frame))
            known = versions
            if not changed:
                await context.write(sse.HEARTBEAT)
            await beat.wait()
            beat.clear()
    await context.finish()


def _read_now(scope: Scope, uris: Collection[str]) -> dict[str, str]:
    """The versions of resources, with the revision that serves the agent now."""
    route = routes.find_route(scope.route.slug) or scope.route
    return subscriptions.read_versions(replace(scope, route=route), uris)
