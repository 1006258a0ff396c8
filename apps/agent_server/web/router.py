"""The front with what deployments decide about HTTP: `http` of their langgraph.json.

A deployment that says nothing costs a look at a dictionary. Another may have its own routes, shut
groups of the server's, set its own CORS rules, and have a prefix path_below its address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import Error as DatabaseError
from django.urls import Resolver404, resolve

from apps.agent_server.consumers import proxy
from apps.agent_server.consumers.proxy import ProxyTarget
from apps.agent_server.web import custom_cors, custom_paths
from apps.core import errors
from apps.core.http.asgi import AsgiRouter, Scope, with_agent_path
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread
from apps.deployments import routes
from apps.deployments.langgraph_json.sections import Cors
from apps.deployments.routes import Route

_PREFIX = "/agents/"


class AgentRouter(AsgiRouter):
    """Routes requests for agents as their deployments want it, and everything else onwards."""

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        scope = with_agent_path(scope)
        path: str = scope["path"]
        if not path.startswith(_PREFIX):
            await super().__call__(scope, receive, send)
            return
        slug, _, rest = path[len(_PREFIX) :].partition("/")
        is_fresh, route = routes.cached_route(slug)
        if not is_fresh:
            route = await _find_route(slug)
        if route is None or route.serving.is_default_http:
            await super().__call__(scope, receive, send)
            return
        await self._serve(route, f"/{rest}", scope, receive, send)

    async def _serve(
        self, route: Route, path_below: str, scope: Scope, receive: Any, send: Any
    ) -> None:
        serving = route.serving
        root = scope.get("agent_root")
        # A domain of the agent's own has the agent at its root.
        target = ProxyTarget(
            route, path_below, "" if root is not None else f"{_PREFIX}{route.slug}"
        )
        prefix = serving.mount_prefix
        if prefix and (path_below == prefix or path_below.startswith(f"{prefix}/")):
            target = ProxyTarget(route, path_below[len(prefix) :] or "/", target.root_path + prefix)
            path = f"{_PREFIX}{route.slug}{target.path}"
            scope = {**scope, "path": path, "agent_root": f"{_PREFIX}{route.slug}"}
        if scope["type"] == "http" and serving.http.cors is not None:
            if await _answer_preflight(serving.http.cors, scope, send):
                return
            send = _with_cors(serving.http.cors, scope, send)
        method = scope.get("method", "GET")
        if custom_paths.is_disabled(serving.http, target.path):
            await _respond_not_found(scope, receive, send)
        elif await self._is_own(target, scope, method):
            await proxy.proxy(target, scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _is_own(self, target: ProxyTarget, scope: Scope, method: str) -> bool:
        """Whether the agent's own application answers."""
        serving = target.route.serving
        if serving.http.app is None:
            return False
        if _is_preflight(scope):
            return False
        found = custom_paths.match(serving.custom_routes, target.path, scope["type"], method)
        if found is None or (not found and custom_paths.takes_rest(serving.custom_routes)):
            return not self._is_built_in(scope)
        return bool(found)

    def _is_built_in(self, scope: Scope) -> bool:
        """Whether the server itself has that address, with any method."""
        path = scope["path"].lstrip("/")
        if scope["type"] == "websocket":
            return False
        if any(route.pattern.match(path) for route in self.http_routes):
            return True
        try:
            resolve(scope["path"])
        except Resolver404:
            return False
        return True


async def _find_route(slug: str) -> Route | None:
    try:
        return await in_thread(routes.find, slug)
    except DatabaseError:
        return None  # what comes next says so in the one error shape


def _header(scope: Scope, name: bytes) -> str | None:
    found = next((value for key, value in scope["headers"] if key == name), None)
    return None if found is None else found.decode("latin-1")


def _is_preflight(scope: Scope) -> bool:
    asked = _header(scope, b"access-control-request-method")
    return scope.get("method") == "OPTIONS" and asked is not None


async def _answer_preflight(cors: Cors, scope: Scope, send: Any) -> bool:
    origin, method = _header(scope, b"origin"), _header(scope, b"access-control-request-method")
    if scope["method"] != "OPTIONS" or origin is None or method is None:
        return False
    asked = _header(scope, b"access-control-request-headers")
    status, text, headers = custom_cors.preflight_response(cors, origin, method, asked)
    plain = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", str(len(text)).encode())
    start = {"type": "http.response.start", "status": status, "headers": [plain, length, *headers]}
    await send(start)
    await send({"type": "http.response.body", "body": text})
    return True


def _with_cors(cors: Cors, scope: Scope, send: Any) -> Callable[[dict[str, Any]], Any]:
    own = custom_cors.response_headers(cors, _header(scope, b"origin"))

    async def send_with_cors(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            kept = [h for h in message["headers"] if not h[0].startswith(b"access-control-")]
            message = {**message, "headers": [*kept, *own]}
        await send(message)

    return send_with_cors


async def _respond_not_found(scope: Scope, receive: Any, send: Any) -> None:
    """404: the deployment does without this."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4404})
        return
    body = dumps(errors.NotFound().as_json())
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": 404, "headers": headers})
    await send({"type": "http.response.body", "body": body})
