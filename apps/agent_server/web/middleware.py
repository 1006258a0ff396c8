"""What holds for every address of an agent, known or not."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from apps.agent_server.web import cors, traffic

PREFIX = "/agents/"


class AgentMiddleware:
    """Answers preflights, opens answers to browsers, and sends trailing slashes away (307)."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.path_info.startswith(PREFIX):
            return self.get_response(request)
        if cors.is_preflight(request):
            return cors.preflight(request)
        slug, _, rest = request.path_info.removeprefix(PREFIX).partition("/")
        if not rest:
            request.path_info = f"{PREFIX}{slug}"  # the agent's own `/`
            response = self.get_response(request)
        else:
            response = _without_slash(request) or self.get_response(request)
        traffic.count_response(slug, response.status_code)
        for name, value in cors.HEADERS.items():
            response.headers[name] = value
        return response


def _without_slash(request: HttpRequest) -> HttpResponse | None:
    if not request.path.endswith("/"):
        return None
    # One leading slash, so that the place is a path here and never another host.
    place = "/" + request.get_full_path_info().partition("?")[0].strip("/")
    query = request.META.get("QUERY_STRING", "")
    location = f"{place}?{query}" if query else place
    return HttpResponse(status=307, headers={"Location": location})
