"""OAuth: metadata, the token route, and the sign-in of the public clients' profiles.

The clients in `apps.api_keys.services.client_sign_in.CLIENTS` have the device flow (RFC 8628).
Clients of MCP servers register themselves and sign in in the browser: the page, which knows the
agents, is in `apps.platform_mcp.authorize`.
"""

from __future__ import annotations

import re
from typing import cast
from urllib.parse import urlsplit
from uuid import UUID

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from redis import RedisError

from apps.api_keys.errors import InvalidTarget, OAuthError, UnknownUserCode, UnsupportedGrantType
from apps.api_keys.models import DeviceLogin
from apps.api_keys.services import authorization_codes, client_sign_in
from apps.api_keys.services.client_sign_in import CLIENTS, CODE_ALPHABET, CODE_LENGTH
from apps.core import errors
from apps.core.request_context import PLATFORM_AUDIENCE, agent_audience
from apps.organizations.models import User, Workspace
from apps.rate_limits.counters import count_custom
from apps.rate_limits.identity import network
from apps.web_ui.pages import LAST_WORKSPACE, form_page, save_form

AUTHORIZATION_CODE_GRANT, REFRESH_GRANT = "authorization_code", "refresh_token"
DEVICE_CODE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MAX_CODES_PER_USER = 20, 600
"""User codes tried and seconds, per user: of 2.5e10 codes only pending ones are valid."""
MAX_CODES_PER_ADDRESS = 100, 600
"""User codes tried and seconds, per client address."""
ACCESS_LEVELS = [
    ("admin", "Everything that you may do"),
    ("write", "Read and write, except deployments"),
    ("read", "Read only"),
]
MAX_WORKSPACES = 500
_AGENT_MCP = re.compile(r"/agents/([-\w]+)(?:/[-.\w]+)*/mcp", re.ASCII)
"""Paths of the agents' MCP servers."""
_SLUG = re.compile(r"[-\w]+", re.ASCII)


@never_cache
@require_GET
def metadata(request: HttpRequest, mount: str = "") -> HttpResponse:
    """Describe the authorization server (RFC 8414).

    Clients take the document only if its issuer is the address that they derived it from: the
    origin, or the origin and `/api`. The host is one of `ALLOWED_HOSTS`.
    """
    issuer = origin_of(request)
    if mount or request.path.startswith("/api/"):
        issuer = f"{issuer}/api"
    return JsonResponse(
        {
            "issuer": issuer,
            # Where the user's session is.
            "authorization_endpoint": f"{settings.BASE_URL}/oauth/authorize",
            "registration_endpoint": f"{issuer}/oauth/register",
            "device_authorization_endpoint": f"{issuer}/oauth/device/code",
            "token_endpoint": f"{issuer}/oauth/token",
            "grant_types_supported": [AUTHORIZATION_CODE_GRANT, DEVICE_CODE_GRANT, REFRESH_GRANT],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }
    )


def describe_resource(request: HttpRequest, resource: str) -> HttpResponse:
    """Describe a protected resource of this installation (RFC 9728): where to get a token."""
    return JsonResponse(
        {
            "resource": resource,
            "authorization_servers": [origin_of(request)],
            "bearer_methods_supported": ["header"],
        }
    )


@never_cache
@csrf_exempt
@require_POST
def device_code(request: HttpRequest) -> HttpResponse:
    """Start a sign-in: a code for the client, and one for the user to enter (RFC 8628, 3.1)."""
    client_id = _parameter(request, "client_id")
    codes = client_sign_in.start_login(
        client_id=client_id,
        address=request.META.get("REMOTE_ADDR") or None,
        audience=_read_audience(request) or "",
    )
    user_code = _format_code(codes.user_code)
    page = f"{settings.BASE_URL}{reverse('client-sign-in')}"
    return JsonResponse(
        {
            "device_code": codes.device_code,
            "user_code": user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?{urlencode({'user_code': user_code})}",
            "expires_in": int(client_sign_in.LOGIN_LIFETIME.total_seconds()),
            "interval": client_sign_in.POLL_INTERVAL_SECONDS,
        }
    )


@never_cache
@csrf_exempt
@require_POST
def token(request: HttpRequest) -> HttpResponse:
    """Exchange a code of either flow, or a refresh token, for new tokens."""
    grant_type, client_id = _parameter(request, "grant_type"), _parameter(request, "client_id")
    audience = _read_audience(request)
    if grant_type == AUTHORIZATION_CODE_GRANT:
        tokens = authorization_codes.exchange_code(
            client_id=client_id,
            code=_parameter(request, "code"),
            redirect_uri=_parameter(request, "redirect_uri"),
            verifier=_parameter(request, "code_verifier"),
            audience=audience,
        )
    elif grant_type == DEVICE_CODE_GRANT:
        tokens = client_sign_in.exchange_device_code(
            client_id=client_id, device_code=_parameter(request, "device_code")
        )
    elif grant_type == REFRESH_GRANT:
        tokens = client_sign_in.refresh_tokens(
            client_id=client_id,
            refresh_token=_parameter(request, "refresh_token"),
            audience=audience,
        )
    else:
        raise UnsupportedGrantType
    return JsonResponse(
        {
            "access_token": tokens.access_token,
            "token_type": "Bearer",
            "expires_in": tokens.expires_in,
            "refresh_token": tokens.refresh_token,
            "scope": tokens.scope,
        }
    )


class UserCodeForm(forms.Form):
    user_code = forms.CharField(
        max_length=20, label="Code", help_text="The client shows it, for example BCDF-GHJK."
    )


class ApprovalForm(forms.Form):
    """The workspace that the client enters by default, and what it may do."""

    workspace = forms.ChoiceField(
        label="Workspace",
        help_text="The client also reaches your other workspaces of the same organization.",
    )
    scope = forms.ChoiceField(label="Access", choices=ACCESS_LEVELS)

    def __init__(self, *args: object, workspaces: list[Workspace], **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # those of Form
        self.fields["workspace"].choices = [  # type: ignore[attr-defined]
            (str(row.pk), f"{row.name} · {row.organization.name}") for row in workspaces
        ]


@require_http_methods(["GET", "POST"])
def approval_page(request: HttpRequest) -> HttpResponse:
    """Ask for the code of a client, show the client that waits for it, and approve or deny.

    The link of the client carries the code; it still has to be compared and approved here.
    """
    user = cast("User", request.user)
    fields = request.POST if request.method == "POST" else request.GET
    form = UserCodeForm(fields if "user_code" in fields else None)
    if not form.is_valid():
        return form_page(request, "account/client_sign_in.html", {"form": form}, form)
    _count_attempt(request, user)
    user_code = form.cleaned_data["user_code"]
    try:
        login = client_sign_in.find_pending_login(user_code)
    except UnknownUserCode as error:
        form.add_error("user_code", error.detail)
        return form_page(request, "account/client_sign_in.html", {"form": form}, form)
    if request.POST.get("answer") == "deny":
        client_sign_in.deny_login(user_code=user_code, user=user)
        return redirect(f"{reverse('client-sign-in-done')}?{urlencode({'answer': 'denied'})}")
    return _approve(request, user, login, user_code)


def _approve(request: HttpRequest, user: User, login: DeviceLogin, user_code: str) -> HttpResponse:
    workspaces = workspaces_of(user)
    is_answer = request.POST.get("answer") == "approve"
    initial = {"workspace": request.COOKIES.get(LAST_WORKSPACE, "")}
    form = ApprovalForm(request.POST if is_answer else None, workspaces=workspaces, initial=initial)

    def approve() -> None:
        client_sign_in.approve_login(
            user_code=user_code,
            user=user,
            workspace_id=UUID(form.cleaned_data["workspace"]),
            scope=form.cleaned_data["scope"],
        )

    if is_answer and save_form(form, approve):
        return redirect(f"{reverse('client-sign-in-done')}?{urlencode({'answer': 'approved'})}")
    context = {
        "form": form,
        "login": login,
        "client_name": CLIENTS[login.client_id],
        "user_code": _format_code(user_code),
        "workspaces": workspaces,
    }
    return form_page(request, "account/client_approval.html", context, form)


@require_GET
def done_page(request: HttpRequest) -> HttpResponse:
    is_approved = request.GET.get("answer") == "approved"
    return render(request, "account/client_sign_in_done.html", {"is_approved": is_approved})


def workspaces_of(user: User) -> list[Workspace]:
    rows = Workspace.objects.present().open_to(user).select_related("organization")
    return list(rows.order_by("organization__name", "name", "pk")[:MAX_WORKSPACES])


def _count_attempt(request: HttpRequest, user: User) -> None:
    """Raise `RateLimited` over the limits, and `Unavailable` without Redis: guesses stay few."""
    address = network(request.META["REMOTE_ADDR"])
    try:
        counts = (
            count_custom("client-sign-in.user", str(user.pk), MAX_CODES_PER_USER),
            count_custom("client-sign-in.address", address, MAX_CODES_PER_ADDRESS),
        )
    except RedisError:
        raise errors.Unavailable from None
    if any(count.is_over for count in counts):
        raise errors.RateLimited("Too many codes were tried. Wait ten minutes.")


def _parameter(request: HttpRequest, name: str) -> str:
    """Return a parameter of the form; raises `OAuthError` if it is missing or repeated."""
    values = request.POST.getlist(name)
    if len(values) != 1 or not values[0]:
        raise OAuthError(f"`{name}` must be given once, in a form-encoded body.")
    return values[0]


def _read_audience(request: HttpRequest) -> str | None:
    """Tokens are for this installation's API or one MCP server, which a client may name (RFC 8707).

    None if it names none. Raises `InvalidTarget` for anything else, and for several.
    """
    origins = {origin_of(request), settings.BASE_URL, settings.API_BASE_URL}
    whole = {f"{origin}{path}" for origin in origins for path in ("", "/api", "/api/v1")}
    names = {resource.rstrip("/") for resource in request.POST.getlist("resource")}
    audiences = {"" if name in whole else audience_of(request, name) for name in names}
    if len(audiences) > 1 or None in audiences:
        raise InvalidTarget
    return audiences.pop() if audiences else None


def audience_of(request: HttpRequest, resource: str) -> str | None:
    """The MCP server with this URL, as `RequestContext.audience` names it; None for any other URL.

    An agent has an address below ours, or a host of its own.
    """
    try:
        parts = urlsplit(resource)
        host = (parts.hostname or "").lower()
    except ValueError:
        return None
    path = parts.path.rstrip("/")
    if parts.query or parts.fragment or not path.endswith("/mcp"):
        return None
    origins = {origin_of(request), settings.BASE_URL, settings.API_BASE_URL}
    if f"{parts.scheme}://{parts.netloc}" in origins:
        match = _AGENT_MCP.fullmatch(path)
        return PLATFORM_AUDIENCE if path == "/mcp" else agent_audience(match[1]) if match else None
    domain = f".{settings.AGENT_DOMAIN}".lower() if settings.AGENT_DOMAIN else None
    if domain is None or parts.scheme != urlsplit(settings.API_BASE_URL).scheme:
        return None
    slug = host.removesuffix(domain)
    return agent_audience(slug) if host.endswith(domain) and _SLUG.fullmatch(slug) else None


def origin_of(request: HttpRequest) -> str:
    """The origin that the client addressed; a proxy that ends TLS is known by the public URLs."""
    for url in (settings.BASE_URL, settings.API_BASE_URL):
        if request.get_host() == urlsplit(url).netloc:
            return url
    return f"{request.scheme}://{request.get_host()}"


def _format_code(user_code: str) -> str:
    code = "".join(character for character in user_code.upper() if character in CODE_ALPHABET)
    return f"{code[: CODE_LENGTH // 2]}-{code[CODE_LENGTH // 2 :]}"
