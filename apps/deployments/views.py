"""The pages of deployments and their revisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core import errors
from apps.deployments import queries, services
from apps.deployments.call_snippets import get_call_snippets
from apps.deployments.forms import NewDeploymentForm, SettingsForm, VariablesForm
from apps.deployments.models import Deployment, LogKind, Revision
from apps.deployments.services import environment
from apps.deployments.services.environment import VariableChanges
from apps.deployments.statuses import FAILED
from apps.organizations.models import Workspace
from apps.organizations.permissions import Permission
from apps.tracing.models import Project
from apps.usage import queues
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_list(request: PageRequest) -> HttpResponse:
    rows = queries.list_deployments(request.caller.workspace_id)
    context = {"rows": rows, "is_in_progress": any(row.is_in_progress for row in rows)}
    return render(
        request, _template_name(request, "deployments/deployment_list.html", "rows"), context
    )


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_new(request: PageRequest) -> HttpResponse:
    """Show the form; after success, redirect to the first revision's page."""
    defaults = {
        "config_path": "langgraph.json",
        "tracing": True,
        "repo_url": request.GET.get("repo_url", "")[:2000],
    }
    form = NewDeploymentForm(request.POST or None, initial=defaults)
    created: list[Deployment] = []

    def create() -> None:
        workspace = Workspace.objects.select_related("organization").get(
            pk=request.caller.workspace_id
        )
        created.append(
            services.create_deployment(
                workspace=workspace, created_by=request.user, **form.cleaned_data
            )
        )

    if request.method == "POST" and save_form(form, create):
        revision = created[0].revisions.newest_first()[0]
        return redirect("revision-detail", request.caller.workspace_id, created[0].pk, revision.pk)
    return form_page(request, "deployments/deployment_new.html", {"form": form}, form)


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_detail(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Show the header and the revisions."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    before = request.GET.get("before", "")
    revisions, next_before = queries.list_revisions(
        row.deployment, before=int(before) if before.isdecimal() and len(before) < 10 else None
    )
    context = _deployment_context(row) | {
        "tab": "revisions",
        "revisions": revisions,
        "next_before": next_before,
    }
    if not request.htmx:
        context["call"] = get_call_snippets(row.deployment)
        project_id = context["project_id"]
        if project_id is not None and request.caller.may(Permission.RUNS_READ):
            workspace_id = request.caller.workspace_id
            context["traces"] = queries.load_agent_traces(workspace_id, project_id)
        if row.deployment.active_revision_id:
            usage = queues.list_deployment_usage(request.caller.workspace_id, deployment_id)
            context["queues"] = usage
    return render(
        request, _template_name(request, "deployments/deployment_detail.html", "live"), context
    )


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_logs(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Show the server log of the revision that serves."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    revision = row.deployment.active_revision
    context = _deployment_context(row) | {"tab": "logs", "revision": revision}
    if revision is not None:
        context |= _log_context(revision, LogKind.SERVER)
    return render(request, "deployments/deployment_logs.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_environment(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Show the variable names; changed variables create a revision."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    names = environment.variable_names(row.deployment)
    form = VariablesForm(request.POST if request.method == "POST" else None, names=names)
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)
        saved: list[tuple[VariableChanges, Revision | None]] = []

        def change() -> None:
            result = services.change_variables(
                deployment=row.deployment,
                values=form.values,
                removed=form.cleaned_data["removed"],
                changed_by=request.user,
            )
            saved.append(result)

        if save_form(form, change):
            changes, revision = saved[0]
            if revision is None:
                messages.info(request, "No variable was changed.")
                return redirect(request.path)
            messages.success(request, f"Environment saved. {changes}")
            return _redirect_to_revision(request, row.deployment, revision)
    context = _deployment_context(row) | {
        "form": form,
        "tab": "environment",
        "variable_names": names,
    }
    return form_page(request, "deployments/deployment_environment.html", context, form)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def deployment_settings(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Edit branch, path, tracing and request limit; link to deletion."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    before = SettingsForm.initial_values(row.deployment)
    form = SettingsForm(request.POST or None, initial=before)
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)
        created: list[Revision | None] = []

        def update() -> None:
            fields = form.cleaned_data.items()
            revision = services.update_deployment(
                deployment=row.deployment,
                changes={name: value for name, value in fields if value != before[name]},
                changed_by=request.user,
            )
            created.append(revision)

        if save_form(form, update):
            messages.success(request, "Settings saved.")
            return _redirect_to_revision(request, row.deployment, created[0])
    context = _deployment_context(row) | {"form": form, "tab": "settings"}
    return form_page(request, "deployments/deployment_settings.html", context, form)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_deploy(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Create a revision from the newest commit of the branch."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    revision = services.create_revision(deployment=row.deployment, created_by=request.user)
    return _redirect_to_revision(request, row.deployment, revision)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_stop(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    return _apply_to_deployment(request, deployment_id, services.stop_deployment, "was stopped")


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_start(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    return _apply_to_deployment(request, deployment_id, services.start_deployment, "was started")


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_restart(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    return _apply_to_deployment(request, deployment_id, services.restart_deployment, "restarts")


def _apply_to_deployment(
    request: PageRequest, deployment_id: UUID, action: Callable[..., Deployment], result: str
) -> HttpResponse:
    """Run the action and redirect to the deployment; show a conflict as a message."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
    try:
        action(deployment=row.deployment)
    except errors.Conflict as error:
        messages.error(request, error.detail)
    else:
        messages.success(request, f"{row.deployment.name} {result}.")
    return redirect("deployment-detail", request.caller.workspace_id, deployment_id)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def deployment_delete(request: PageRequest, deployment_id: UUID) -> HttpResponse:
    """Delete the deployment if the request has its name as confirmation."""
    row = queries.get_deployment(request.caller.workspace_id, deployment_id)
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
    """Show the timeline, properties and log of a revision."""
    revision = queries.get_revision(request.caller.workspace_id, deployment_id, revision_id)
    context: dict[str, Any] = {
        "revision": revision,
        "deployment": revision.deployment,
        "stages": queries.get_stages(revision),
        "is_active": revision.deployment.active_revision_id == revision.pk,
        "may_retry": revision.status in FAILED and queries.is_newest(revision),
        "project_id": _find_project(revision.deployment),
    }
    if request.htmx:
        return render(request, "deployments/revision_detail.html#live", context)
    kind = LogKind.SERVER if request.GET.get("log") == "server" else LogKind.BUILD
    context |= _log_context(revision, kind)
    context["graphs"] = list(queries.list_graph_ids(revision))
    return render(request, "deployments/revision_detail.html", context)


@require_GET
@workspace_page(Permission.DEPLOYMENTS_READ)
def revision_log(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    """Return the whole log as a text file."""
    revision = queries.get_revision(request.caller.workspace_id, deployment_id, revision_id)
    kind = LogKind.SERVER if request.GET.get("log") == "server" else LogKind.BUILD
    name = f"{revision.deployment.slug}-{revision.number}-{kind.name.lower()}.log"
    return HttpResponse(
        queries.format_log(revision, kind),
        content_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def revision_stop(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    revision = queries.get_revision(request.caller.workspace_id, deployment_id, revision_id)
    return _apply_to_revision(
        request, revision, lambda: services.interrupt_revision(revision=revision)
    )


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def revision_redeploy(request: PageRequest, deployment_id: UUID, revision_id: UUID) -> HttpResponse:
    revision = queries.get_revision(request.caller.workspace_id, deployment_id, revision_id)
    return _apply_to_revision(request, revision, lambda: services.redeploy(revision=revision))


def _apply_to_revision(
    request: PageRequest, revision: Revision, action: Callable[[], Revision]
) -> HttpResponse:
    """Run the action and redirect to the revision; show a conflict as a message."""
    try:
        action()
    except errors.Conflict as error:
        messages.error(request, error.detail)
    return _redirect_to_revision(request, revision.deployment, revision)


def _redirect_to_revision(
    request: PageRequest, deployment: Deployment, revision: Revision | None
) -> HttpResponse:
    ids = [request.caller.workspace_id, deployment.pk]
    if revision is None:
        return redirect("deployment-detail", *ids)
    return redirect("revision-detail", *ids, revision.pk)


def _log_context(revision: Revision, kind: LogKind) -> dict[str, Any]:
    """Return the context of deployments/live_log.html."""
    return {
        "log": queries.get_log(revision, kind),
        "kind": kind.value,
        "is_live": kind == LogKind.SERVER or not revision.is_final,
    }


def _deployment_context(row: queries.DeploymentRow) -> dict[str, Any]:
    """Return the context of the page header."""
    deployment = row.deployment
    return {"row": row, "deployment": deployment, "project_id": _find_project(deployment)}


def _find_project(deployment: Deployment) -> UUID | None:
    """Return the id of the project that the deployment traces to, if it has a trace."""
    projects = Project.objects.for_workspace(deployment.workspace_id)
    return projects.filter(name=deployment.name).values_list("pk", flat=True).first()


def _template_name(request: PageRequest, template: str, part: str) -> str:
    return f"{template}#{part}" if request.htmx else template
