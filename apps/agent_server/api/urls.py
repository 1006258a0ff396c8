"""Routes of an Agent Server that answer at once; those that stream or wait are in routing.py."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.urls.resolvers import URLPattern
from django.views.decorators.csrf import csrf_exempt

from apps.agent_server.api import assistants, crons, runs, system, threads, webhooks
from apps.agent_server.routing import http_routes
from apps.core.errors import MethodNotAllowed
from apps.core.json import dumps


def _other_methods(route: URLPattern) -> URLPattern:
    """Answers 405 where a consumer takes only some methods."""

    def refuse(request: HttpRequest, **_: str) -> HttpResponse:
        allowed = ", ".join(route.default_args["methods"])
        return HttpResponse(
            dumps(MethodNotAllowed().as_json()),
            content_type="application/json",
            status=405,
            headers={"Allow": allowed},
        )

    return path(str(route.pattern), csrf_exempt(refuse))


_views = [
    *system.routes,
    *assistants.routes,
    *threads.routes,
    *runs.routes,
    *webhooks.routes,
    *webhooks.control_routes,
]
_addresses = {str(route.pattern) for route in _views}

urlpatterns = [
    # In this order: `runs/crons` and `runs/stream` are also addresses of runs with strange ids.
    *crons.routes,
    *[_other_methods(route) for route in http_routes if str(route.pattern) not in _addresses],
    *_views,
]
