"""What the views of an Agent Server share: one agent, its caller admitted, its bodies checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.agent_server.auth.access import Admission, admit
from apps.agent_server.auth.custom_auth import (
    AUTH_EXCHANGE_KEY,
    AuthExchange,
    AuthPending,
    describe_request,
)
from apps.agent_server.errors import InvalidId
from apps.agent_server.schemas.base import Body, Page
from apps.agent_server.web import query
from apps.api_keys.authentication import enforce_csrf
from apps.core import errors
from apps.core.api import WorkspaceAPIView
from apps.core.http.wsgi_bridge import RETRY_KEY
from apps.deployments.routes import Route
from apps.organizations.models import User
from apps.organizations.permissions import Permission

B = TypeVar("B", bound=Body)


class AgentAuthentication(BaseAuthentication):
    """Admits the caller to the agent of the address; `request.auth` is the `Admission`."""

    def authenticate(self, request: Request) -> tuple[object, Admission]:
        context = request.parser_context
        view: AgentView = context["view"]
        permission = view.permission_for(request.method or "GET")
        admission = admit(
            context["kwargs"]["slug"],
            permission,
            request.headers,
            lambda: _member(request._request),
            lambda: _visit(request, context["kwargs"]),
        )
        return admission.caller, admission

    def authenticate_header(self, request: Request) -> str:
        return "X-Api-Key"


def _member(request: HttpRequest) -> User | None:
    user = request.user
    if not isinstance(user, User) or not user.is_active:
        return None
    enforce_csrf(request)
    return user


def _visit(request: Request, kwargs: Mapping[str, str]) -> AuthExchange:
    """Return the request's auth exchange, which survives a restart of the request."""
    environ = request._request.META
    if AUTH_EXCHANGE_KEY not in environ:
        facts = describe_request(
            method=request.method or "GET",
            path=request._request.path_info,
            query=environ.get("QUERY_STRING", ""),
            headers=request.headers.items(),
            path_params=kwargs,
        )
        environ[AUTH_EXCHANGE_KEY] = AuthExchange(facts)
    exchange: AuthExchange = environ[AUTH_EXCHANGE_KEY]
    return exchange


class IsAdmitted(BasePermission):
    def has_permission(self, request: Request, view: APIView) -> bool:
        if not isinstance(request.auth, Admission):
            raise errors.Unauthenticated
        return True


class AgentView(WorkspaceAPIView):
    """A view of one agent; reading needs `agents:read`, everything else `agents:run`.

    Nothing may be changed before `admission` was asked for the right to do it: the agent's own code
    may have to be asked, and then the view is begun again.
    """

    authentication_classes = (AgentAuthentication,)
    permission_classes = (IsAdmitted,)  # type: ignore[assignment]
    required_permission: ClassVar[str | dict[str, str]] = {
        "GET": Permission.AGENTS_READ,
        "*": Permission.AGENTS_RUN,
    }

    on_loop: ClassVar[Collection[str]] = ()
    """The methods that execute only prepared statements; see `sync_bridge.run_on_loop`."""

    def handle_exception(self, exc: Exception) -> Response:
        environ = self.request._request.META
        if isinstance(exc, AuthPending) and AUTH_EXCHANGE_KEY in environ:
            environ[RETRY_KEY] = environ[AUTH_EXCHANGE_KEY].resolve
        return super().handle_exception(exc)

    @property
    def admission(self) -> Admission:
        admission: Any = self.request.auth
        found: Admission = admission
        return found

    @property
    def route(self) -> Route:
        return self.admission.route

    def body(self, kind: type[B]) -> B:
        """The request's body, checked."""
        return kind.parse(self.request._request.body)

    @staticmethod
    def uuid(value: str, noun: str, refusal: type[errors.AppError] = InvalidId) -> UUID:
        try:
            return UUID(value)
        except ValueError:
            raise refusal(noun) from None

    def words(self, name: str) -> list[str]:
        """A list of the query."""
        return query.parse_list(name, self.request.query_params.getlist(name))

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """An integer of the query."""
        given = self.request.query_params.get(name, "")
        try:
            value = int(given) if given else default
        except ValueError:
            raise errors.Invalid(f"{name}: not a number") from None
        if not least <= value <= most:
            raise errors.Invalid(f"{name}: must be from {least} to {most}")
        return value


def paged(rows: list[dict[str, Any]], body: Page, *, has_more: bool) -> Response:
    """A page as clients expect it: a bare list, and headers that say how to go on."""
    after = body.offset + len(rows)
    headers = {"X-Pagination-Total": str(after + (1 if has_more else 0))}
    if has_more:
        headers["X-Pagination-Next"] = str(after)
    return Response(rows, headers=headers)
