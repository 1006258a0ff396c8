"""The ASGI application of agents: routes, and the `http` settings of their langgraph.json.

With these settings a deployment serves custom routes, disables groups of built-in routes, sets its
own CORS rules and mounts everything below a path prefix. Without them, a request costs one look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db import Error as DatabaseError

from apps.agent_server.endpoints.routes import route_table
from apps.agent_server.web import custom_paths, proxy
from apps.agent_server.web.cors import preflight_response, response_headers
from apps.agent_server.web.http_context import HttpRequestContext, Response
from apps.agent_server.web.proxy import ProxyTarget
from apps.core import errors
from apps.core.http.asgi import AGENT_PREFIX, Application
from apps.core.http.body_reader import AsgiScope
from apps.core.json import dumps
from apps.core.request_context import RequestContext, enter
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.langgraph_json.sections import Cors
from apps.deployments.routes import Route

_SLUG = re.compile(r"[-\w]+", re.ASCII)
_DJANGO_PATHS = frozenset({"/docs"})


class AgentRouter:
    """Serves everything below `/agents/<slug>`."""

    def __init__(self, *, websocket: Application, fallback: Application) -> None:
        """`fallback` is Django: for the API page, preflights, redirects and unknown paths."""
        self._websocket = websocket
        self._fallback = fallback

    async def __call__(self, scope: AsgiScope, receive: Any, send: Any) -> None:
        slug, _, rest = scope["path"][len(AGENT_PREFIX) :].partition("/")
        is_fresh, route = routes.cached_route(slug)
        if not is_fresh:
            route = await _find_route(slug)
        if route is None or route.serving.is_default_http:
            await self._serve_builtin(slug, f"/{rest}", scope, receive, send)
        else:
            await self._serve_custom(route, f"/{rest}", scope, receive, send)

    async def _serve_builtin(
        self, slug: str, path: str, scope: AsgiScope, receive: Any, send: Any
    ) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        method = scope["method"]
        match = route_table.find(path, method)
        if _SLUG.fullmatch(slug) is None or (match is None and _is_preflight(scope)):
            await self._fallback(scope, receive, send)
        elif match is not None:
            endpoint, path_params = match
            path_params["slug"] = slug
            context = HttpRequestContext(scope, receive, send, path_params, endpoint.route)
            await endpoint(context)
        elif allowed := route_table.methods(path):
            context = HttpRequestContext(scope, receive, send, {"slug": slug})
            await _respond_to_other_method(context, method, allowed)
        else:
            await self._fallback(scope, receive, send)

    async def _serve_custom(
        self, route: Route, path: str, scope: AsgiScope, receive: Any, send: Any
    ) -> None:
        serving = route.serving
        root = scope.get("agent_root")
        # On its own domain, the agent is at the root.
        target = ProxyTarget(route, path, "" if root is not None else f"{AGENT_PREFIX}{route.slug}")
        prefix = serving.mount_prefix
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            target = ProxyTarget(route, path[len(prefix) :] or "/", target.root_path + prefix)
            agent_root = f"{AGENT_PREFIX}{route.slug}"
            scope = {**scope, "path": agent_root + target.path, "agent_root": agent_root}
        if scope["type"] == "http" and serving.http.cors is not None:
            if await _answer_preflight(serving.http.cors, scope, send):
                return
            send = _with_cors(serving.http.cors, scope, send)
        if custom_paths.is_disabled(serving.http, target.path):
            await _respond_not_found(scope, receive, send)
        elif _is_custom(target, scope):
            enter(RequestContext((scope.get("client") or (None,))[0]))
            await proxy.proxy(target, scope, receive, send)
        else:
            await self._serve_builtin(route.slug, target.path, scope, receive, send)


def _is_custom(target: ProxyTarget, scope: AsgiScope) -> bool:
    """Whether the agent's own application serves the request."""
    serving = target.route.serving
    if serving.http.app is None or _is_preflight(scope):
        return False
    method = scope.get("method", "GET")
    match = custom_paths.match(serving.custom_routes, target.path, scope["type"], method)
    if match is None or (not match and custom_paths.has_catch_all(serving.custom_routes)):
        is_builtin = target.path in _DJANGO_PATHS or bool(route_table.methods(target.path))
        return scope["type"] == "websocket" or not is_builtin
    return match


async def _respond_to_other_method(
    context: HttpRequestContext, method: str, allowed: list[str]
) -> None:
    """Respond 405 with `Allow`, or to OPTIONS with `Allow` alone."""
    allow = (b"allow", ", ".join(allowed).encode())
    if method in allowed:
        await context.send(Response(b"{}", headers=[allow]))
    else:
        error = errors.MethodNotAllowed()
        await context.send(Response(dumps(error.as_json()), error.status, [allow]))


async def _find_route(slug: str) -> Route | None:
    try:
        return await in_thread(routes.find_route, slug)
    except DatabaseError:
        return None  # the endpoint meets the same error and reports it


def _header(scope: AsgiScope, name: bytes) -> str | None:
    value = next((value for key, value in scope["headers"] if key == name), None)
    return None if value is None else value.decode("latin-1")


def _is_preflight(scope: AsgiScope) -> bool:
    return (
        scope.get("method") == "OPTIONS"
        and _header(scope, b"access-control-request-method") is not None
    )


async def _answer_preflight(cors: Cors, scope: AsgiScope, send: Any) -> bool:
    origin, method = _header(scope, b"origin"), _header(scope, b"access-control-request-method")
    if scope["method"] != "OPTIONS" or origin is None or method is None:
        return False
    requested = _header(scope, b"access-control-request-headers")
    status, text, headers = preflight_response(cors, origin, method, requested)
    content_type = (b"content-type", b"text/plain; charset=utf-8")
    await _send_response(send, status, text, content_type, *headers)
    return True


def _with_cors(cors: Cors, scope: AsgiScope, send: Any) -> Callable[[dict[str, Any]], Any]:
    """Replace the CORS headers of the response by those of the deployment."""
    headers = response_headers(cors, _header(scope, b"origin"))

    async def send_with_cors(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own_headers = [h for h in message["headers"] if not h[0].startswith(b"access-control-")]
            message = {**message, "headers": [*own_headers, *headers]}
        await send(message)

    return send_with_cors


async def _respond_not_found(scope: AsgiScope, receive: Any, send: Any) -> None:
    """Respond 404 to a request for a disabled route."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4404})
        return
    body = dumps(errors.NotFound().as_json())
    await _send_response(send, 404, body, (b"content-type", b"application/json"))


async def _send_response(send: Any, status: int, body: bytes, *headers: proxy.Header) -> None:
    length = (b"content-length", b"%d" % len(body))
    start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
    await send(start)
    await send({"type": "http.response.body", "body": body})
