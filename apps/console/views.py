"""Signing in and out, the way home, and the command palette."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts import login_flow, throttle
from apps.accounts.context import sign_in_context
from apps.console import palette
from apps.console.forms import SignInForm
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission
from apps.web_ui.pages import LAST_WORKSPACE, PageRequest, to_sign_in, workspace_page


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """To the workspace last used, or the first one that the person may enter."""
    if not isinstance(request.user, User):
        return to_sign_in(request) if request.path != "/" else redirect("sign-in")
    open_to = Workspace.objects.open_to(request.user).order_by("created_at")
    ids = list(open_to.values_list("pk", flat=True))
    if not ids:
        return redirect("own-organizations")
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    chosen = next((pk for pk in ids if str(pk) == last), ids[0])
    return redirect("project-list", chosen)


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """The form; after it, the page that was asked for. Wrong: 422. Too many tries: 429."""
    after = _safe(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(after)
    if request.method == "GET":
        return _sign_in_page(request, SignInForm(request=request), after, status=200)

    form = SignInForm(request.POST, request=request)
    if not throttle.consume(request, request.POST.get("email", "")[:254]):
        form.errors.clear()
        form.add_error(None, "Too many attempts. Wait ten minutes, then try again.")
        return _sign_in_page(request, form, after, status=429)
    if not form.is_valid() or form.user is None:
        return _sign_in_page(request, form, after, status=422)
    return login_flow.login(request, form.user, after)


def _sign_in_page(
    request: HttpRequest, form: SignInForm, after: str, *, status: int
) -> HttpResponse:
    shown = after if after != reverse("home") else ""
    context = sign_in_context(request) | {"form": form, "next": shown}
    return render(request, "console/sign_in.html", context, status=status)


def _safe(request: HttpRequest, address: str) -> str:
    """The address when it is one of ours, else home."""
    ours = url_has_allowed_host_and_scheme(
        address, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return address if ours else reverse("home")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("sign-in")


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def workspace_home(request: PageRequest) -> HttpResponse:
    return redirect("project-list", request.caller.workspace_id)


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def find(request: PageRequest) -> HttpResponse:
    """The palette's results for `q`, as the fragment that it shows."""
    groups = palette.search(request.caller, request.GET.get("q", "")[:200])
    return render(request, "console/palette.html", {"groups": groups})


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def host_deployments(request: PageRequest, deployment_id: UUID | None = None) -> HttpResponse:
    """The addresses that command-line clients print."""
    if deployment_id is None:
        return redirect("deployment-list", request.caller.workspace_id)
    return redirect("deployment-detail", request.caller.workspace_id, deployment_id)


@require_GET
def host_deployments_anywhere(request: HttpRequest) -> HttpResponse:
    """`/host/deployments` names no workspace: the one last used is meant."""
    if not isinstance(request.user, User):
        return to_sign_in(request)
    ids = [str(pk) for pk in Workspace.objects.open_to(request.user).values_list("pk", flat=True)]
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    return redirect("deployment-list", last if last in ids else ids[0]) if ids else home(request)
