"""Sign-in, sign-out, the home redirect and the command palette."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth import authenticate, logout
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.accounts.sign_in import count_attempt, login, sign_in_context
from apps.console import palette
from apps.console.first_run import (
    DEFAULT_PROJECT,
    KEY_DAYS,
    PLACEHOLDER,
    KeyPurpose,
    clean_project_name,
    create_key,
    deploy_sample_agent,
    find_newest_trace,
    find_sample_agent,
    load_first_run,
    load_rejections,
)
from apps.console.first_steps import COOKIE, SCORE
from apps.console.sample_data import (
    SampleNameTaken,
    find_sample_project,
    load_sample_data,
    remove_sample_data,
)
from apps.core import errors
from apps.core.callers import Caller
from apps.organizations.models import User, Workspace
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.organizations.services import caller_for, organization_caller_for
from apps.tracing.pages.periods import parse_time
from apps.web_ui.pages import (
    LAST_WORKSPACE,
    PageRequest,
    form_page,
    organization_caller,
    save_form,
    to_sign_in,
    workspace_page,
)

START_CLOSED = "slipway_start_closed"
"""The cookie with the id of the workspace in which the first run was closed."""
_COOKIE_SECONDS = 31_536_000
ARRIVAL_ID = "trace-arrival"
"""The element that waits for a trace, in `console/start.html`."""


class FirstKeyForm(forms.Form):
    """What the new key is for."""

    purpose = forms.ChoiceField(
        choices=[(purpose, purpose) for purpose in KeyPurpose], required=False
    )

    def clean_purpose(self) -> str:
        return self.cleaned_data["purpose"] or KeyPurpose.TRACE


class SignInForm(forms.Form):
    """Email and password. `user` is set once the form is valid."""

    email = forms.EmailField(max_length=254, label="Email")
    password = forms.CharField(max_length=1024, strip=False, widget=forms.PasswordInput)

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request
        self.user: User | None = None

    def clean(self) -> dict[str, Any]:
        email, password = self.cleaned_data.get("email"), self.cleaned_data.get("password")
        if email and password:
            user = authenticate(self.request, username=email.strip().lower(), password=password)
            if not isinstance(user, User):
                raise forms.ValidationError("Email and password do not match.")
            self.user = user
        return self.cleaned_data


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the workspace last used, or to the user's oldest workspace."""
    if not isinstance(request.user, User):
        return to_sign_in(request) if request.path != "/" else redirect("sign-in")
    workspaces = Workspace.objects.open_to(request.user).order_by("created_at")
    ids = list(workspaces.values_list("pk", flat=True))
    if not ids:
        return redirect("my-organizations")
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    workspace_id = next((pk for pk in ids if str(pk) == last), ids[0])
    caller = caller_for(user=request.user, workspace_id=workspace_id)
    return redirect(_landing_page(request, caller), workspace_id)


def _landing_page(request: HttpRequest, caller: Caller | None) -> str:
    """Return the name of the first page: `start` while the workspace has no trace.

    Not for readers, who send none, and not in a browser that has closed it.
    """
    if caller is None or not caller.may(Permission.PROJECTS_WRITE):
        return "project-list"
    is_closed = request.COOKIES.get(START_CLOSED) == str(caller.workspace_id)
    return "project-list" if is_closed or find_newest_trace(caller) else "start"


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in and redirect to `next`; 422 for wrong credentials, 429 for too many attempts."""
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
    """Return the URL if it is on this host, else the home page.

    `redirect` would take a word without a slash for the name of a view.
    """
    is_safe = url.startswith(("/", "https://", "http://")) and url_has_allowed_host_and_scheme(
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
    """Redirect to the first page; with `close`, to the projects, from now on in this browser."""
    workspace_id = request.caller.workspace_id
    if "close" not in request.GET:
        return redirect(_landing_page(request, request.caller), workspace_id)
    response = redirect("project-list", workspace_id)
    response.set_cookie(
        START_CLOSED, str(workspace_id), _COOKIE_SECONDS, httponly=True, samesite="Lax"
    )
    return response


@require_GET
def start_of_last_workspace(request: HttpRequest) -> HttpResponse:
    """Redirect from `/start`, which `make up` prints, to the page of the workspace last used."""
    if not isinstance(request.user, User):
        return to_sign_in(request)
    ids = [str(pk) for pk in Workspace.objects.open_to(request.user).values_list("pk", flat=True)]
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    return redirect("start", last if last in ids else ids[0]) if ids else home(request)


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def start(request: PageRequest) -> HttpResponse:
    """Show how to send a trace, call an agent and deploy one; a POST creates a key for it.

    The response to the POST is the only one that has the key; it is JSON for a script that asks
    for it. For htmx, only the line about the newest trace, which refreshes itself until a trace
    comes that started after `since`.
    """
    since = parse_time(request.GET.get("since", ""))
    if request.htmx and request.htmx.target == ARRIVAL_ID:
        return render(request, "console/start.html#arrival", _arrival_context(request, since))
    organization = organization_caller(request, OrganizationPermission.ORGANIZATION_READ)
    form = FirstKeyForm(request.POST if request.method == "POST" else None)
    secrets: dict[str, str] = {}
    if request.method == "POST":
        organization.require(OrganizationPermission.PERSONAL_KEYS_CREATE)

        def create() -> None:
            purpose = KeyPurpose(form.cleaned_data["purpose"])
            secrets[purpose] = create_key(request.caller, request.user, purpose)

        is_created = save_form(form, create)
        if request.accepts("application/json") and not request.accepts("text/html"):
            if not is_created:
                raise errors.Invalid(str(next(iter(form.errors.values()))[0]))
            return JsonResponse({"key": next(iter(secrets.values())), "days": KEY_DAYS})
    context = {
        "form": form,
        "first_run": load_first_run(request.caller),
        "trace_key": secrets.get(KeyPurpose.TRACE, PLACEHOLDER),
        "call_key": secrets.get(KeyPurpose.CALL, PLACEHOLDER),
        "key_placeholder": PLACEHOLDER,
        "project_name": clean_project_name(request.GET.get("project", DEFAULT_PROJECT)),
        "may_create_key": organization.may(OrganizationPermission.PERSONAL_KEYS_CREATE),
        "key_days": KEY_DAYS,
        "sample_project": find_sample_project(request.caller.workspace_id),
        "may_load_sample": request.caller.may(Permission.RUNS_INGEST)
        and request.caller.may(Permission.PROJECTS_WRITE),
        "may_remove_sample": request.caller.may(Permission.PROJECTS_DELETE),
        **_arrival_context(request, since or timezone.now()),
    }
    return form_page(request, "console/start.html", context, form)


def _arrival_context(request: PageRequest, since: datetime | None) -> dict[str, Any]:
    may_read = request.caller.may(Permission.RUNS_READ)
    newest = find_newest_trace(request.caller)
    has_arrived = newest is not None and (since is None or newest.start_time >= since)
    return {
        "since": since,
        "newest_trace": newest if has_arrived else None,
        "earlier_trace": None if has_arrived else newest,
        "rejections": load_rejections(request.caller) if may_read and not has_arrived else None,
        "may_read_traces": may_read,
    }


@require_POST
@workspace_page(Permission.RUNS_INGEST)
def sample_data_change(request: PageRequest) -> HttpResponse:
    """Load the sample data and show it; with `action=remove`, remove it."""
    workspace_id = request.caller.workspace_id
    if request.POST.get("action") == "remove":
        request.caller.require(Permission.PROJECTS_DELETE)
        remove_sample_data(workspace_id)
        messages.success(request, "The sample data was removed.")
        return redirect("workspace-home", workspace_id)
    request.caller.require(Permission.PROJECTS_WRITE)
    try:
        project = load_sample_data(workspace_id)
    except SampleNameTaken as error:
        messages.error(request, error.detail)
        return redirect("start", workspace_id)
    return redirect("project-detail", workspace_id, project.pk)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def sample_agent_deploy(request: PageRequest) -> HttpResponse:
    """Deploy the sample agent and show its build; a workspace has it once."""
    workspace_id = request.caller.workspace_id
    existing = find_sample_agent(workspace_id)
    if existing is not None:
        return redirect("deployment-detail", workspace_id, existing.pk)
    try:
        deployment = deploy_sample_agent(workspace_id, request.user)
    except errors.AppError as error:
        messages.error(request, error.detail)
        return redirect("start", workspace_id)
    return redirect("deployment-detail", workspace_id, deployment.pk)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.RUNS_READ)
def first_steps(request: PageRequest) -> HttpResponse:
    """Open the transcript of the newest trace, or its feedback; a POST closes the list of steps."""
    workspace_id = request.caller.workspace_id
    if request.method == "POST":
        response = redirect(_safe_redirect_url(request, request.POST.get("next", "")))
        choice = "closed"
    else:
        newest = find_newest_trace(request.caller)
        if newest is None:
            return redirect("start", workspace_id)
        if request.GET.get("step") == SCORE:
            url = reverse("trace-detail", args=[workspace_id, newest.project_id, newest.id])
            return redirect(f"{url}?view=tree#run-tab-feedback")
        response = redirect("trace-redirect", workspace_id, newest.id)
        choice = "read"
    response.set_cookie(COOKIE, choice, _COOKIE_SECONDS, httponly=True, samesite="Lax")
    return response


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def search_palette(request: PageRequest) -> HttpResponse:
    """Render the search results for `q` as a fragment."""
    caller = request.caller
    organization = organization_caller_for(
        user=request.user, organization_id=caller.organization_id
    )
    groups = palette.search(caller, request.GET.get("q", "")[:200], organization)
    return render(request, "console/palette.html", {"groups": groups})


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def host_deployments(request: PageRequest, deployment_id: UUID | None = None) -> HttpResponse:
    """Redirect from the deployment URLs that command-line clients print."""
    if deployment_id is None:
        return redirect("deployment-list", request.caller.workspace_id)
    return redirect("deployment-detail", request.caller.workspace_id, deployment_id)


@require_GET
def host_deployments_of_last_workspace(request: HttpRequest) -> HttpResponse:
    """Redirect from `/host/deployments` to the deployments of the workspace last used."""
    if not isinstance(request.user, User):
        return to_sign_in(request)
    ids = [str(pk) for pk in Workspace.objects.open_to(request.user).values_list("pk", flat=True)]
    last = request.COOKIES.get(LAST_WORKSPACE, "")
    return redirect("deployment-list", last if last in ids else ids[0]) if ids else home(request)
