"""Answering with a view of `api` without Django's handler and REST framework's dispatch around it.

Middleware, request objects and negotiation cost a request several times what the view does. What
an agent's address needs of them, the context has: the caller is admitted, ids and CORS headers are
on the answer, errors have their one shape. The views also stand in Django's URLs: for methods that
they do not take, and for the OpenAPI description. See docs/adr/0014-requests-on-the-event-loop.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

from django.http import HttpResponse, QueryDict
from django.urls import URLPattern, path
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from apps.agent_server.api.base import AgentView
from apps.agent_server.auth.access import Admission
from apps.agent_server.consumers.http_request import JSON, Consumer, Header, HttpRequestContext
from apps.core.api import from_drf
from apps.core.json import dumps
from apps.core.sync_bridge import in_thread

NO_CONTENT = 204
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Asked:
    """What views use of a request, in the names that REST framework gives it."""

    def __init__(self, context: HttpRequestContext, body: bytes) -> None:
        self._context = context
        self._request = self  # Django's own request, as far as views ask it
        self.body = body
        self.method = context.scope["method"]
        self.headers = context.headers
        self.auth: Admission

    @cached_property
    def query_params(self) -> QueryDict:
        return QueryDict(self._context.scope["query_string"])


class Views(Consumer):
    """Answers the methods of one view."""

    view: type[AgentView]

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        on_loop = context.scope["method"] in self.view.on_loop
        answer = await (context.run_service if on_loop else in_thread)(self.answer, context, raw)
        await context.start(*_headers(answer, body := _body(answer)), status=answer.status_code)
        await context.finish(body)

    def answer(self, context: HttpRequestContext, raw: bytes) -> HttpResponse:
        """Let the caller in and have the view answer."""
        view, asked = self.view(), Asked(context, raw)
        view.request = cast("Any", asked)
        view.kwargs = context.kwargs
        asked.auth = context.admit(view.permission_for(asked.method))
        try:
            response: HttpResponse = getattr(view, asked.method.lower())(asked, **context.kwargs)
        except APIException as error:
            raise from_drf(error) from error
        return response


def _body(answer: HttpResponse) -> bytes:
    if not isinstance(answer, Response):
        return answer.content
    return b"" if answer.status_code == NO_CONTENT else dumps(answer.data)


def _headers(answer: HttpResponse, body: bytes) -> list[Header]:
    found: list[Header] = []
    if answer.status_code != NO_CONTENT:
        given = answer.headers["Content-Type"].encode("latin-1")
        found.append(JSON if isinstance(answer, Response) else (b"content-type", given))
        found.append((b"content-length", str(len(body)).encode()))
    for name, value in answer.items():
        if name != "Content-Type":
            found.append((name.lower().encode("latin-1"), value.encode("latin-1")))
    return found


def routes_of(patterns: list[URLPattern]) -> list[URLPattern]:
    """The routes of those patterns that belong to views of agents."""
    found = []
    for pattern in patterns:
        view = getattr(pattern.callback, "view_class", None)
        if view is None or not issubclass(view, AgentView):
            continue
        methods = tuple(name for name in METHODS if hasattr(view, name.lower()))
        consumer: type[Views] = type(view.__name__, (Views,), {"view": view, "methods": methods})
        application: Any = consumer.as_asgi()
        found.append(path(str(pattern.pattern), application, {"methods": methods}))
    return found
