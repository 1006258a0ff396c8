"""Paths of agents that the ASGI router leaves to Django: preflights, redirects, unknown paths."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from apps.agent_server.web import cors, traffic
from apps.core.http.asgi import AGENT_PREFIX


class AgentMiddleware:
    """Answers preflights, adds CORS headers and redirects paths with a trailing slash (307)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(AGENT_PREFIX):
            return self.get_response(request)
        if cors.is_preflight(request):
            return cors.preflight(request)
        slug, _, _ = request.path_info.removeprefix(AGENT_PREFIX).partition("/")
        response = _without_slash(request) or self.get_response(request)
        traffic.count_response(slug, response.status_code)
        for name, value in cors.HEADERS.items():
            response.headers[name] = value
        return response


def _without_slash(request: HttpRequest) -> HttpResponse | None:
    if not request.path.endswith("/"):
        return None
    # One leading slash: two would name another host.
    path = "/" + request.get_full_path_info().partition("?")[0].strip("/")
    query = request.META.get("QUERY_STRING", "")
    location = f"{path}?{query}" if query else path
    return HttpResponse(status=307, headers={"Location": location})
