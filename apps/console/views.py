"""Sign-in, sign-out, the home redirect and the command palette."""

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

from apps.accounts.sign_in import count_attempt, login, sign_in_context
from apps.console import palette
from apps.console.forms import SignInForm
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import Permission
from apps.web_ui.pages import LAST_WORKSPACE, PageRequest, to_sign_in, workspace_page


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the workspace last used, or to the user's oldest workspace."""
    if not isinstance(request.user, User):
        return to_sign_in(request) if request.path != "/" else redirect("sign-in")
    open_to = Workspace.objects.open_to(request.user).order_by("created_at")
    ids = list(open_to.values_list("pk", flat=True))
    if not ids:
        return redirect("my-organizations")
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    workspace_id = next((pk for pk in ids if str(pk) == last), ids[0])
    return redirect("project-list", workspace_id)


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in and redirect to `next`. Wrong credentials: 422. Too many attempts: 429."""
    next_url = _safe_redirect_url(request, request.POST.get("next") or request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(next_url)
    if request.method == "GET":
        return _sign_in_page(request, SignInForm(request=request), next_url, status=200)

    form = SignInForm(request.POST, request=request)
    if not count_attempt(request, request.POST.get("email", "")[:254]):
        form.errors.clear()
        form.add_error(None, "Too many attempts. Wait ten minutes, then try again.")
        return _sign_in_page(request, form, next_url, status=429)
    if not form.is_valid() or form.user is None:
        return _sign_in_page(request, form, next_url, status=422)
    return login(request, form.user, next_url)


def _sign_in_page(
    request: HttpRequest, form: SignInForm, next_url: str, *, status: int
) -> HttpResponse:
    context = sign_in_context(request) | {
        "form": form,
        "next": next_url if next_url != reverse("home") else "",
    }
    return render(request, "console/sign_in.html", context, status=status)


def _safe_redirect_url(request: HttpRequest, url: str) -> str:
    """Return the URL if it is on this host, else the home page."""
    is_safe = url_has_allowed_host_and_scheme(
        url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return url if is_safe else reverse("home")


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
def search_palette(request: PageRequest) -> HttpResponse:
    """Render the search results for `q` as a fragment."""
    groups = palette.search(request.caller, request.GET.get("q", "")[:200])
    return render(request, "console/palette.html", {"groups": groups})


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def host_deployments(request: PageRequest, deployment_id: UUID | None = None) -> HttpResponse:
    """Redirect the deployment URLs that command-line clients print."""
    if deployment_id is None:
        return redirect("deployment-list", request.caller.workspace_id)
    return redirect("deployment-detail", request.caller.workspace_id, deployment_id)


@require_GET
def host_deployments_of_last_workspace(request: HttpRequest) -> HttpResponse:
    """Redirect `/host/deployments` to the deployments of the workspace last used."""
    if not isinstance(request.user, User):
        return to_sign_in(request)
    ids = [str(pk) for pk in Workspace.objects.open_to(request.user).values_list("pk", flat=True)]
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    return redirect("deployment-list", last if last in ids else ids[0]) if ids else home(request)
