"""Pages of personal keys, workspace keys and organization keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.api_keys import services
from apps.api_keys.forms import OVERLAPS, KeyForm, OrganizationKeyForm, RotationForm
from apps.api_keys.models import ApiKey, ApiKeyQuerySet, KeyKind
from apps.api_keys.services import KeyPolicy
from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.models import Organization
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.queries import accessible_workspaces
from apps.web_ui.pages import PageRequest, form_page, organization_caller, save_form, workspace_page

_O = OrganizationPermission
MAX_KEYS_SHOWN = 500


@dataclass
class IssuedKey:
    """A new key with its secret, which is shown once."""

    secret: str = ""
    key: ApiKey | None = None
    overlap: bool = False


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.KEYS_READ)
def settings_keys(request: PageRequest) -> HttpResponse:
    """List the service keys of the workspace; the form creates one for it."""
    form, issued = KeyForm(request.POST or None), IssuedKey()
    if request.method == "POST":
        request.caller.require(Permission.KEYS_MANAGE)

        def create() -> None:
            issued.key, issued.secret = services.issue_service_key(
                organization_id=request.caller.organization_id,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_ids=[request.caller.workspace_id],
                policy=_policy(request),
                created_by=request.user,
                expires_at=form.expires_at,
            )

        if save_form(form, create):
            form = KeyForm()
    return _page(
        request,
        form,
        issued,
        rows=_workspace_keys(request),
        title="Service keys",
        kind="workspace",
        may_write=request.caller.may(Permission.KEYS_MANAGE),
    )


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_personal_keys(request: PageRequest) -> HttpResponse:
    """List the personal keys; a new one defaults to this workspace."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    form, issued = KeyForm(request.POST or None), IssuedKey()
    if request.method == "POST":
        caller.require(_O.PERSONAL_KEYS_CREATE)

        def create() -> None:
            issued.key, issued.secret = services.issue_personal_key(
                organization_id=caller.organization_id,
                person=request.user,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_id=request.caller.workspace_id,
                expires_at=form.expires_at,
            )

        if save_form(form, create):
            form = KeyForm()
    organization = Organization.objects.get(pk=caller.organization_id)
    may_write = caller.may(_O.PERSONAL_KEYS_CREATE) and not organization.personal_keys_disabled
    return _page(
        request,
        form,
        issued,
        rows=_personal_keys(request),
        title="Personal keys",
        kind="personal",
        may_write=may_write,
        is_forbidden=organization.personal_keys_disabled,
    )


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_organization_keys(request: PageRequest) -> HttpResponse:
    """List all keys of the organization; the form creates a service key."""
    caller = organization_caller(request, _O.SERVICE_KEYS_MANAGE)
    workspaces = [row.workspace for row in accessible_workspaces(caller)]
    form, issued = OrganizationKeyForm(request.POST or None, workspaces=workspaces), IssuedKey()
    if request.method == "POST":

        def create() -> None:
            issued.key, issued.secret = services.issue_service_key(
                organization_id=caller.organization_id,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_ids=[UUID(pk) for pk in form.cleaned_data["workspaces"]],
                policy=_policy(request),
                created_by=request.user,
                expires_at=form.expires_at,
            )

        if save_form(form, create):
            form = OrganizationKeyForm(workspaces=workspaces)
    return _page(
        request,
        form,
        issued,
        rows=ApiKey.objects.filter(organization_id=caller.organization_id),
        title="API keys",
        kind="organization",
        may_write=True,
    )


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_key_revoke(request: PageRequest, key_id: UUID) -> HttpResponse:
    """Revoke the key; effective in every process within a second."""
    key = _get_manageable_key(request, key_id)
    services.revoke_key(key=key)
    messages.success(request, f"{key.name} was revoked.")
    return redirect(_return_url_name(request), request.caller.workspace_id)


@never_cache
@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_key_rotate(request: PageRequest, key_id: UUID) -> HttpResponse:
    """Replace the secret and show it; the old secret expires after the chosen overlap.

    Only its user can rotate a personal key: the new secret acts as that user.
    """
    key = _get_manageable_key(request, key_id)
    if key.kind == KeyKind.PERSONAL and key.person_id != request.user.pk:
        raise errors.Forbidden("Only its user can rotate a personal key. Revoke it instead.")
    form, issued = RotationForm(request.POST), IssuedKey()

    def rotate() -> None:
        issued.key, issued.secret = services.rotate_key(key=key, overlap=form.overlap_duration)
        issued.overlap = bool(form.overlap_duration)

    if not save_form(form, rotate):
        failures = form.non_field_errors()
        raise errors.Invalid(str(failures[0]) if failures else None)
    return form_page(
        request,
        "api_keys/rotated.html",
        {"issued": issued, "return_url_name": _return_url_name(request), "key": issued.key},
    )


def _page(
    request: PageRequest,
    form: KeyForm,
    issued: IssuedKey,
    *,
    rows: ApiKeyQuerySet,
    **context: Any,
) -> HttpResponse:
    keys = (
        rows.unrevoked()
        .newest_first()
        .select_related("created_by", "person", "workspace", "client_session")
    )
    return form_page(
        request,
        "api_keys/keys.html",
        {
            "form": form,
            "issued": issued,
            "rows": keys.prefetch_related("workspaces")[:MAX_KEYS_SHOWN],
            "overlaps": OVERLAPS,
            **context,
        },
        form,
    )


def _policy(request: PageRequest) -> KeyPolicy:
    return KeyPolicy.of_user(request.user, request.caller.organization_id)


def _workspace_keys(request: PageRequest) -> ApiKeyQuerySet:
    keys = ApiKey.objects.filter(organization_id=request.caller.organization_id)
    return keys.reaching(request.caller.workspace_id)


def _personal_keys(request: PageRequest) -> ApiKeyQuerySet:
    keys = ApiKey.objects.filter(organization_id=request.caller.organization_id)
    return keys.of_person(request.user.pk)


def _get_manageable_key(request: PageRequest, key_id: UUID) -> ApiKey:
    """Return a key that the user may revoke: their own, or one that they manage."""
    keys = ApiKey.objects.unrevoked().select_related("person")
    key = get_or_404(keys.filter(organization_id=request.caller.organization_id), pk=key_id)
    if key.person_id == request.user.pk:
        return key
    policy = _policy(request)
    if key.kind == KeyKind.PERSONAL:
        policy.require_organization()
    else:
        policy.check_manages(key)
    return key


_RETURN_URL_NAMES: dict[str, str] = {
    "personal": "settings-personal-keys",
    "workspace": "settings-keys",
    "organization": "settings-organization-keys",
}


def _return_url_name(request: PageRequest) -> str:
    return _RETURN_URL_NAMES.get(request.POST.get("kind", ""), "settings-personal-keys")
