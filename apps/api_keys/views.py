"""Pages of keys: a person's own, those of a workspace, those of an organization."""

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
from apps.api_keys.forms import OVERLAPS, KeyForm, ReachingKeyForm, RotationForm
from apps.api_keys.models import ApiKey, KeyKind
from apps.api_keys.querysets import ApiKeyQuerySet
from apps.api_keys.services import KeyPolicy
from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.models import Organization
from apps.organizations.page_helpers import organization_caller, page, save_form
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.queries import accessible_workspaces
from apps.web_ui.pages import PageRequest, workspace_page

_O = OrganizationPermission
MAX_KEYS_SHOWN = 500


@dataclass
class IssuedKey:
    """A key that was made just now: the only time that its text can be seen."""

    secret: str = ""
    key: ApiKey | None = None
    overlap: bool = False


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.KEYS_READ)
def setting_keys(request: PageRequest) -> HttpResponse:
    """Service keys that reach the workspace; the form makes one for it alone."""
    form, made = KeyForm(request.POST or None), IssuedKey()
    if request.method == "POST":
        request.caller.require(Permission.KEYS_MANAGE)

        def make() -> None:
            made.key, made.secret = services.issue_service_key(
                organization_id=request.caller.organization_id,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_ids=[request.caller.workspace_id],
                rights=_rights(request),
                created_by=request.user,
                expires_at=form.expires_at,
            )

        if save_form(form, make):
            form = KeyForm()
    return _page(
        request,
        form,
        made,
        rows=_here(request),
        title="Service keys",
        kind="workspace",
        may_write=request.caller.may(Permission.KEYS_MANAGE),
    )


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_personal_keys(request: PageRequest) -> HttpResponse:
    """The person's own keys in this organization; a new one means this workspace."""
    caller = organization_caller(request, _O.ORGANIZATION_READ)
    form, made = KeyForm(request.POST or None), IssuedKey()
    if request.method == "POST":
        caller.require(_O.PERSONAL_KEYS_CREATE)

        def make() -> None:
            made.key, made.secret = services.issue_personal_key(
                organization_id=caller.organization_id,
                person=request.user,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_id=request.caller.workspace_id,
                expires_at=form.expires_at,
            )

        if save_form(form, make):
            form = KeyForm()
    organization = Organization.objects.get(pk=caller.organization_id)
    may_write = caller.may(_O.PERSONAL_KEYS_CREATE) and not organization.personal_keys_disabled
    return _page(
        request,
        form,
        made,
        rows=_own(request),
        title="Personal keys",
        kind="own",
        may_write=may_write,
        is_forbidden=organization.personal_keys_disabled,
    )


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def setting_organization_keys(request: PageRequest) -> HttpResponse:
    """Every key of the organization; the form makes a service key that reaches all or some."""
    caller = organization_caller(request, _O.SERVICE_KEYS_MANAGE)
    places = [one.workspace for one in accessible_workspaces(caller)]
    form, made = ReachingKeyForm(request.POST or None, workspaces=places), IssuedKey()
    if request.method == "POST":

        def make() -> None:
            made.key, made.secret = services.issue_service_key(
                organization_id=caller.organization_id,
                name=form.cleaned_data["name"],
                scopes=[form.cleaned_data["scope"]],
                workspace_ids=[UUID(one) for one in form.cleaned_data["workspaces"]],
                rights=_rights(request),
                created_by=request.user,
                expires_at=form.expires_at,
            )

        if save_form(form, make):
            form = ReachingKeyForm(workspaces=places)
    return _page(
        request,
        form,
        made,
        rows=ApiKey.objects.filter(organization_id=caller.organization_id),
        title="API keys",
        kind="organization",
        may_write=True,
    )


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_key_revoke(request: PageRequest, key_id: UUID) -> HttpResponse:
    """Dead on every process within a second."""
    key = _managed(request, key_id)
    services.revoke_key(key=key)
    messages.success(request, f"{key.name} was revoked.")
    return redirect(_back(request), request.caller.workspace_id)


@never_cache
@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def setting_key_rotate(request: PageRequest, key_id: UUID) -> HttpResponse:
    """A new secret, shown on the page that answers; the old one ends when it is said to."""
    key = _managed(request, key_id)
    form, made = RotationForm(request.POST), IssuedKey()

    def rotate() -> None:
        made.key, made.secret = services.rotate_key(key=key, overlap=form.span)
        made.overlap = bool(form.span)

    if not save_form(form, rotate):
        said = form.non_field_errors()
        raise errors.Invalid(str(said[0]) if said else None)
    return page(
        request, "api_keys/rotated.html", {"made": made, "back": _back(request), "key": made.key}
    )


def _page(
    request: PageRequest,
    form: KeyForm,
    made: IssuedKey,
    *,
    rows: ApiKeyQuerySet,
    **context: Any,
) -> HttpResponse:
    shown = rows.unrevoked().newest_first().select_related("created_by", "person", "workspace")
    return page(
        request,
        "api_keys/keys.html",
        {
            "form": form,
            "made": made,
            "rows": shown.prefetch_related("workspaces")[:MAX_KEYS_SHOWN],
            "overlaps": OVERLAPS,
            **context,
        },
        form,
    )


def _rights(request: PageRequest) -> KeyPolicy:
    return KeyPolicy.of_user(request.user, request.caller.organization_id)


def _here(request: PageRequest) -> ApiKeyQuerySet:
    keys = ApiKey.objects.filter(organization_id=request.caller.organization_id)
    return keys.reaching(request.caller.workspace_id)


def _own(request: PageRequest) -> ApiKeyQuerySet:
    keys = ApiKey.objects.filter(organization_id=request.caller.organization_id)
    return keys.of_person(request.user.pk)


def _managed(request: PageRequest, key_id: UUID) -> ApiKey:
    """A key that the person may end: their own, or one whose whole reach they look after."""
    keys = ApiKey.objects.unrevoked().select_related("person")
    key = get_or_404(keys.filter(organization_id=request.caller.organization_id), pk=key_id)
    if key.person_id == request.user.pk:
        return key
    rights = _rights(request)
    if key.kind == KeyKind.PERSONAL:
        rights.require_organization()
    else:
        rights.check_manages(key)
    return key


_BACK: dict[str, str] = {
    "own": "setting-personal-keys",
    "workspace": "setting-keys",
    "organization": "setting-organization-keys",
}


def _back(request: PageRequest) -> str:
    return _BACK.get(request.POST.get("kind", ""), "setting-personal-keys")
