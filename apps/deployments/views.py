"""The pages of deployments and their revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.forms import Form
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors
from apps.deployments import pages, services
from apps.deployments.forms import NewDeploymentForm, SettingsForm, VariablesForm
from apps.deployments.models import Deployment, LogKind, Revision
from apps.organizations.models import Workspace
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.web_ui.pages import PageRequest, workspace_page


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_list(request: PageRequest) -> HttpResponse:
    rows = pages.deployments(request.caller.workspace_id)
    context = {"rows": rows, "is_settled": all(row.is_settled for row in rows)}
    return render(request, _part(request, "deployments/deployment_list.html", "rows"), context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_new(request: PageRequest) -> HttpResponse:
    """The form; after it, the first revision's page with its log."""
    first = {"config_path": "langgraph.json", "tracing": True}
    form = NewDeploymentForm(request.POST or None, initial=first)
    made: list[Deployment] = []

    def create() -> None:
        workspace = Workspace.objects.select_related("organization").get(
            pk=request.caller.workspace_id
        )
        made.append(
            services.create_deployment(
                workspace=workspace, created_by=request.user, **form.cleaned_data
            )
        )

    if request.method == "POST" and _done(form, create):
        revision = made[0].revisions.newest_first()[0]
        return redirect("revision-detail", request.caller.workspace_id, made[0].pk, revision.pk)
    return _form_page(request, "deployments/deployment_new.html", form)


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_detail(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """The head and the revisions."""
    row = pages.deployment(request.caller.workspace_id, deployment_id)
    before = request.GET.get("before", "")
    revisions, next_before = pages.revisions(
        row.deployment, before=int(before) if before.isdecimal() and len(before) < 10 else None
    )
    context = _head(row) | {"tab": "revisions", "revisions": revisions, "next_before": next_before}
    return render(request, _part(request, "deployments/deployment_detail.html", "live"), context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_environment(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """The names of the variables; a new set makes a new revision."""
    row = pages.deployment(request.caller.workspace_id, deployment_id)
    form = VariablesForm(request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)
        made: list[Revision | None] = []

        def replace() -> None:
            revision = services.update_deployment(
                deployment=row.deployment,
                changes={},
                variables=form.cleaned_data["variables"],
                changed_by=request.user,
            )
            made.append(revision)

        if _done(form, replace):
            return _to_revision(request, row.deployment, made[0])
    names = pages.variable_names(row.deployment)
    context = _head(row) | {"tab": "environment", "names": names}
    return _form_page(request, "deployments/deployment_environment.html", form, context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_settings(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Branch, path, tracing and the agent's own limit; deleting."""
    row = pages.deployment(request.caller.workspace_id, deployment_id)
    before = SettingsForm.of(row.deployment)
    form = SettingsForm(request.POST or None, initial=before)
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)
        made: list[Revision | None] = []

        def update() -> None:
            given = form.cleaned_data.items()
            revision = services.update_deployment(
                deployment=row.deployment,
                changes={name: value for name, value in given if value != before[name]},
                changed_by=request.user,
            )
            made.append(revision)

        if _done(form, update):
            messages.success(request, "Settings saved.")
            return _to_revision(request, row.deployment, made[0])
    context = _head(row) | {"tab": "settings"}
    return _form_page(request, "deployments/deployment_settings.html", form, context)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_deploy(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Build the newest commit of the branch."""
    row = pages.deployment(request.caller.workspace_id, deployment_id)
    revision = services.create_revision(deployment=row.deployment, created_by=request.user)
    return _to_revision(request, row.deployment, revision)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_delete(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Take it away, once its name was typed."""
    row = pages.deployment(request.caller.workspace_id, deployment_id)
    if request.POST.get("name") != row.deployment.name:
        messages.error(
            request, f"The deployment was not deleted. Type {row.deployment.name} to confirm."
        )
        return redirect("deployment-settings", request.caller.workspace_id, deployment_id)
    services.delete_deployments(
        workspace_id=request.caller.workspace_id, deployment_ids=[deployment_id]
    )
    messages.success(request, f"{row.deployment.name} was deleted.")
    return redirect("deployment-list", request.caller.workspace_id)


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def revision_detail(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    """The way, the properties and the log of one revision."""
    revision = pages.revision(request.caller.workspace_id, deployment_id, revision_id)
    context: dict[str, Any] = {
        "revision": revision,
        "deployment": revision.deployment,
        "stations": pages.way(revision),
        "is_active": revision.deployment.active_revision_id == revision.pk,
    }
    if request.htmx:
        return render(request, "deployments/revision_detail.html#live", context)
    kind = LogKind.SERVER if request.GET.get("log") == "server" else LogKind.BUILD
    context |= {
        "log": pages.log(revision, kind),
        "kind": kind.value,
        "is_live": kind == LogKind.SERVER or not revision.is_final,
        "graphs": list(pages.graph_names(revision)),
    }
    return render(request, "deployments/revision_detail.html", context)


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def revision_log(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    """A whole log as a text file."""
    revision = pages.revision(request.caller.workspace_id, deployment_id, revision_id)
    kind = LogKind.SERVER if request.GET.get("log") == "server" else LogKind.BUILD
    name = f"{revision.deployment.slug}-{revision.number}-{kind.name.lower()}.log"
    return HttpResponse(
        pages.log_text(revision, kind),
        content_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def revision_stop(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    revision = pages.revision(request.caller.workspace_id, deployment_id, revision_id)
    return _acted(request, revision, lambda: services.interrupt_revision(revision=revision))


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def revision_redeploy(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    revision = pages.revision(request.caller.workspace_id, deployment_id, revision_id)
    return _acted(request, revision, lambda: services.redeploy(revision=revision))


def _acted(request: PageRequest, revision: Revision, deed: Callable[[], Revision]) -> HttpResponse:
    """Do it and show the revision; a refusal is said on that page."""
    try:
        deed()
    except errors.Conflict as refusal:
        messages.error(request, refusal.detail)
    return _to_revision(request, revision.deployment, revision)


def _to_revision(
    request: PageRequest, deployment: Deployment, revision: Revision | None
) -> HttpResponse:
    where = [request.caller.workspace_id, deployment.pk]
    if revision is None:
        return redirect("deployment-detail", *where)
    return redirect("revision-detail", *where, revision.pk)


def _done(form: Form, deed: Callable[[], None]) -> bool:
    """Whether the form was good and the deed done; what a service refuses becomes the form's."""
    if not form.is_valid():
        return False
    try:
        deed()
    except (errors.BadRequest, errors.Conflict, errors.Invalid) as refusal:
        form.add_error(None, refusal.detail)
        return False
    return True


def _form_page(
    request: PageRequest, template: str, form: Form, context: dict[str, Any] | None = None
) -> HttpResponse:
    status = 422 if form.errors else 200
    return render(request, template, {"form": form, **(context or {})}, status=status)


def _head(row: pages.DeploymentRow) -> dict[str, Any]:
    """What every page of one deployment shows above its tabs."""
    projects = Project.objects.for_workspace(row.deployment.workspace_id)
    project = projects.filter(name=row.deployment.name).values_list("pk", flat=True).first()
    return {"row": row, "deployment": row.deployment, "project_id": project}


def _part(request: PageRequest, template: str, part: str) -> str:
    return f"{template}#{part}" if request.htmx else template
