"""Registration of clients of MCP servers, and the page on which a user lets one in.

Nothing of a client is verified, so a request never redirects before the user's answer: its errors
are pages. The page can be neither framed nor submitted by another site.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from pydantic import BaseModel, ValidationError
from redis import RedisError

from apps.accounts.client_sign_in import (
    ACCESS_LEVELS,
    AUTHORIZATION_CODE_GRANT,
    REFRESH_GRANT,
    audience_of,
    workspaces_of,
)
from apps.api_keys.errors import (
    InvalidClientMetadata,
    InvalidTarget,
    OAuthError,
    UnsupportedResponseType,
)
from apps.api_keys.services import authorization_codes, oauth_clients
from apps.api_keys.services.authorization_codes import CHALLENGE, Consent
from apps.api_keys.services.oauth_clients import MAX_NAME_LENGTH, OAuthClient
from apps.core import errors
from apps.core.json import read_json
from apps.core.request_context import PLATFORM_AUDIENCE
from apps.deployments import routes
from apps.deployments.routes import Route
from apps.organizations.models import User, Workspace
from apps.rate_limits.counters import count_custom
from apps.rate_limits.identity import network
from apps.web_ui.pages import LAST_WORKSPACE, form_page, save_form

MAX_REGISTRATIONS = 60, 600
"""Registrations and seconds, per client address."""
MAX_FIELD_LENGTH = 4096
_NO_SERVER = "There is no such MCP server for you, or it has a sign-in of its own."
_FIELDS = (
    *("response_type", "client_id", "redirect_uri", "resource"),
    *("code_challenge", "code_challenge_method", "state", "scope"),
)


class ClientMetadata(BaseModel):
    """What a client registers (RFC 7591, section 2); other fields do not matter here."""

    redirect_uris: list[str]
    client_name: str = ""
    grant_types: list[str] = [AUTHORIZATION_CODE_GRANT]
    response_types: list[str] = ["code"]


@never_cache
@csrf_exempt
@require_POST
def register(request: HttpRequest) -> HttpResponse:
    """Register a client. It has no secret, whatever it asks for, as RFC 7591 allows."""
    _count_registration(request)
    try:
        metadata = ClientMetadata.model_validate(read_json(request.body))
    except (ValidationError, errors.Invalid):
        raise InvalidClientMetadata from None
    if AUTHORIZATION_CODE_GRANT not in metadata.grant_types:
        raise InvalidClientMetadata(f"`grant_types` must contain `{AUTHORIZATION_CODE_GRANT}`.")
    if "code" not in metadata.response_types:
        raise InvalidClientMetadata("`response_types` must contain `code`.")
    printable = filter(str.isprintable, " ".join(metadata.client_name.split()))
    name = "".join(printable)[:MAX_NAME_LENGTH] or "MCP client"
    client_id = oauth_clients.register_client(name, metadata.redirect_uris)
    return JsonResponse(
        {
            "client_id": client_id,
            "client_name": name,
            "redirect_uris": metadata.redirect_uris,
            "grant_types": [AUTHORIZATION_CODE_GRANT, REFRESH_GRANT],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        status=HTTPStatus.CREATED,
    )


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """A client's request, checked."""

    client: OAuthClient
    redirect_uri: str
    challenge: str
    audience: str
    state: str
    scope: str
    route: Route | None
    """The agent; None for the platform's own server."""

    @property
    def destination(self) -> str:
        """Where the answer goes, as the page names it."""
        parts = urlsplit(self.redirect_uri)
        return parts.netloc if parts.scheme in {"http", "https"} else f"{parts.scheme}:"

    def redirect(self, **answer: str) -> HttpResponse:
        """Send the browser back to the client with the answer."""
        parts = urlsplit(self.redirect_uri)
        state = {"state": self.state} if self.state else {}
        query = [*parse_qsl(parts.query, keep_blank_values=True), *{**answer, **state}.items()]
        response = ClientRedirect(parts._replace(query=urlencode(query)).geturl())
        response["Referrer-Policy"] = "no-referrer"
        return response


class ClientRedirect(HttpResponseRedirect):
    """A redirect to a checked address, whose scheme may be a client's own."""

    def __init__(self, url: str) -> None:
        self.allowed_schemes = [urlsplit(url).scheme]
        super().__init__(url)


class ConsentForm(forms.Form):
    """What the client may do, and where."""

    workspace = forms.ChoiceField(label="Workspace")
    access = forms.ChoiceField(label="Access", choices=ACCESS_LEVELS)

    def __init__(self, *args: Any, workspaces: list[Workspace], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(workspaces) > 1:
            text = "The client also reaches your other workspaces of the same organization."
            self.fields["workspace"].help_text = text
        self.fields["workspace"].choices = [  # type: ignore[attr-defined]
            (str(row.pk), f"{row.name} · {row.organization.name}") for row in workspaces
        ]


def authorize(request: HttpRequest) -> HttpResponse:
    """Show who asks for what, and send the user's answer to the client."""
    user = cast("User", request.user)
    fields = request.POST if request.method == "POST" else request.GET
    workspaces = workspaces_of(user)
    try:
        sign_in = _read_request(request, {name: fields.getlist(name) for name in _FIELDS})
        if sign_in.route is not None:
            workspaces = [row for row in workspaces if row.pk == sign_in.route.workspace_id]
            if not workspaces:  # as if there were no such agent
                raise InvalidTarget(_NO_SERVER)
    except OAuthError as error:
        context = {"detail": error.detail}
        return render(request, "platform_mcp/authorize_error.html", context, status=error.status)
    if request.POST.get("answer") == "deny":
        authorization_codes.deny(user)
        return sign_in.redirect(error="access_denied")
    return _ask(request, user, sign_in, workspaces)


def _ask(
    request: HttpRequest, user: User, sign_in: SignInRequest, workspaces: list[Workspace]
) -> HttpResponse:
    is_answer = request.POST.get("answer") == "approve"
    levels = [level for level, _ in ACCESS_LEVELS]
    wanted = next((word for word in sign_in.scope.split() if word in levels), "write")
    initial = {"workspace": request.COOKIES.get(LAST_WORKSPACE, ""), "access": wanted}
    form = ConsentForm(request.POST if is_answer else None, workspaces=workspaces, initial=initial)
    code = ""

    def grant() -> None:
        nonlocal code
        consent = Consent(
            sign_in.client,
            sign_in.redirect_uri,
            sign_in.challenge,
            sign_in.audience,
            UUID(form.cleaned_data["workspace"]),
            form.cleaned_data["access"],
        )
        code = authorization_codes.grant_code(consent, user=user)

    if is_answer and save_form(form, grant):
        return sign_in.redirect(code=code)
    sent = request.POST if request.method == "POST" else request.GET
    context = {
        "form": form,
        "sign_in": sign_in,
        "workspaces": workspaces,
        "sent": [(name, sent[name]) for name in _FIELDS if name in sent],
    }
    response = form_page(request, "platform_mcp/authorize.html", context, form)
    add_never_cache_headers(response)
    # Browsers apply the policy also to the redirect that answers the form.
    source = oauth_clients.redirect_source(sign_in.redirect_uri)
    response._csp_update = {"form-action": [source]}  # type: ignore[attr-defined]  # noqa: SLF001
    return response


def _read_request(request: HttpRequest, fields: dict[str, list[str]]) -> SignInRequest:
    """Check the request of a client. Raises `OAuthError`."""
    values = {name: _single(name, given) for name, given in fields.items()}
    client = oauth_clients.find_client(values["client_id"])
    if not client.allows(values["redirect_uri"]):
        raise OAuthError("`redirect_uri` is not an address that the client has registered.")
    if values["response_type"] != "code":
        raise UnsupportedResponseType
    is_hashed = values["code_challenge_method"] == "S256"
    if not is_hashed or not CHALLENGE.fullmatch(values["code_challenge"]):
        raise OAuthError("`code_challenge` must be that of PKCE, with the method S256.")
    audience = audience_of(request, values["resource"])
    if audience is None:
        raise InvalidTarget("`resource` must be the URL of an MCP server of this installation.")
    route = None
    if audience != PLATFORM_AUDIENCE:
        route = routes.find_route(audience.rpartition("/")[2])
        if route is None or route.serving.auth is not None or route.serving.http.disable_mcp:
            raise InvalidTarget(_NO_SERVER)
    return SignInRequest(
        client,
        values["redirect_uri"],
        values["code_challenge"],
        audience,
        values["state"],
        values["scope"],
        route,
    )


def _single(name: str, values: list[str]) -> str:
    if len(values) > 1 or any(len(value) > MAX_FIELD_LENGTH for value in values):
        raise OAuthError(
            f"`{name}` must be given once, with at most {MAX_FIELD_LENGTH} characters."
        )
    return values[0] if values else ""


def _count_registration(request: HttpRequest) -> None:
    address = network(request.META.get("REMOTE_ADDR", ""))
    try:
        count = count_custom("oauth-register.address", address, MAX_REGISTRATIONS)
    except RedisError:
        raise errors.Unavailable from None
    if count.is_over:
        raise errors.RateLimited("Too many clients were registered. Wait ten minutes.")
