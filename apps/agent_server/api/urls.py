"""Routes of an Agent Server that answer at once; those that stream or wait are in routing.py."""

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.urls.resolvers import URLPattern

from apps.agent_server.api import views
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

    return path(str(route.pattern), refuse)


urlpatterns = [
    # First: `runs/stream` is also the address of a run with a strange id.
    *[_other_methods(route) for route in http_routes],
    path("agents/<slug:slug>/ok", views.OkView.as_view()),
    path("agents/<slug:slug>/info", views.InfoView.as_view()),
    path("agents/<slug:slug>/assistants/search", views.AssistantSearchView.as_view()),
    path("agents/<slug:slug>/assistants/count", views.AssistantCountView.as_view()),
    path("agents/<slug:slug>/assistants/<str:assistant_id>", views.AssistantView.as_view()),
    path(
        "agents/<slug:slug>/assistants/<str:assistant_id>/schemas",
        views.AssistantSchemasView.as_view(),
    ),
    path("agents/<slug:slug>/threads", views.ThreadsView.as_view()),
    path("agents/<slug:slug>/threads/search", views.ThreadSearchView.as_view()),
    path("agents/<slug:slug>/threads/count", views.ThreadCountView.as_view()),
    path("agents/<slug:slug>/threads/<str:thread_id>", views.ThreadView.as_view()),
    path("agents/<slug:slug>/threads/<str:thread_id>/runs", views.ThreadRunsView.as_view()),
    path(
        "agents/<slug:slug>/threads/<str:thread_id>/runs/<str:run_id>",
        views.ThreadRunView.as_view(),
    ),
    path("agents/<slug:slug>/runs", views.RunsView.as_view()),
]
