"""Pages of alerts: lists, the form with its preview, and a rule with its incidents."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.alerts import pages
from apps.alerts.forms import AlertForm, ChannelForm
from apps.alerts.models import AlertAction, AlertIncident, AlertRule
from apps.alerts.services import notices, rules
from apps.core.errors import AppError
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.tracing.services import get_project
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page
from apps.webhooks.models import Delivery
from apps.webhooks.pages import DeliveryRow

PAGE_SIZE = 50
SILENCES = {60: "1 hour", 240: "4 hours", 1440: "1 day", 10_080: "1 week"}


@require_GET
@workspace_page(Permission.ALERTS_READ)
def alert_list(request: PageRequest) -> HttpResponse:
    workspace_id = request.caller.workspace_id
    context = {
        "rows": pages.load_rows(AlertRule.objects.for_workspace(workspace_id), workspace_id),
        "may_write": request.caller.may(Permission.ALERTS_WRITE),
    }
    return render(request, "alerts/alert_list.html", context)


@require_GET
@workspace_page(Permission.ALERTS_READ)
def project_alerts(request: PageRequest, project_id: UUID) -> HttpResponse:
    """List the rules of one project."""
    project = get_project(request.caller.workspace_id, project_id)
    rows = AlertRule.objects.for_workspace(project.workspace_id).filter(project=project)
    context = {
        "project": project,
        "tab": "alerts",
        "rows": pages.load_rows(rows, project.workspace_id),
        "may_write": request.caller.may(Permission.ALERTS_WRITE),
    }
    return render(request, "alerts/project_alerts.html", context)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ALERTS_WRITE)
def alert_new(request: PageRequest) -> HttpResponse:
    return _edit(request, None)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ALERTS_WRITE)
def alert_edit(request: PageRequest, rule_id: UUID) -> HttpResponse:
    return _edit(request, _find(request, rule_id))


def _edit(request: PageRequest, rule: AlertRule | None) -> HttpResponse:
    """Show the form with a preview; save as `action` requests."""
    workspace_id = request.caller.workspace_id
    scope = _parse_scope(request.GET.get("project", ""))
    form = AlertForm(workspace_id, request.POST or None, rule=rule, scope=scope)
    saved: list[AlertRule] = []

    def save() -> None:
        if rule is not None:
            saved.append(rules.update_rule(rule=rule, changes=form.changes)[0])
            return
        new_rule = form.build_rule()
        new_rule.created_by_id = request.caller.user_id
        rules.create_rule(rule=new_rule)
        saved.append(new_rule)

    card = None
    if request.POST.get("action") == "save":
        if save_form(form, save):
            messages.success(request, f"{saved[0].name} was saved.")
            return redirect("alert-detail", workspace_id, saved[0].pk)
    elif form.is_bound and save_form(form, lambda: rules.validate_rule(form.build_rule())):
        card = pages.load_preview(form.build_rule(), "Value")
    elif rule is not None and not form.is_bound:
        card = pages.load_preview(rule, "Value")
    context = {"form": form, "rule": rule, "card": card}
    return form_page(request, "alerts/alert_form.html", context, form)


def _parse_scope(project_id: str) -> str:
    """Return the form's value for the project of a link; empty if it is no id."""
    try:
        return f"project:{UUID(project_id)}"
    except ValueError:
        return ""


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.ALERTS_READ)
def alert_detail(request: PageRequest, rule_id: UUID) -> HttpResponse:
    """Show the rule; the form adds a channel and shows the secret of a webhook once."""
    rule = _find(request, rule_id)
    form, secrets = ChannelForm(request.POST or None), {}
    if request.method == "POST":
        request.caller.require(Permission.ALERTS_WRITE)

        def add() -> None:
            secrets.update(rules.add_action(rule=rule, fields=form.action_fields))

        if save_form(form, add):
            form = ChannelForm()
    return form_page(
        request,
        "alerts/alert_detail.html",
        {
            **_detail_context(request, rule),
            "form": form,
            "secret": next(iter(secrets.values()), ""),
        },
        form,
    )


def _detail_context(request: PageRequest, rule: AlertRule) -> dict[str, Any]:
    incidents = AlertIncident.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    rows = list(incidents.newest_first()[:PAGE_SIZE])
    deliveries = Delivery.objects.for_workspace(rule.workspace_id).filter(subject_id=rule.pk)
    channels = pages.load_channels(rule)
    names = {row.action.pk: row.action.get_target_display() for row in channels}
    return {
        "rule": rule,
        "row": pages.build_row(rule, rows[0] if rows else None),
        "card": pages.load_preview(rule, "Value in the last day", period=pages.CHART_PERIOD),
        "incidents": [(incident, notices.format_metric(rule, incident.value)) for incident in rows],
        "channels": channels,
        "deliveries": [
            DeliveryRow(
                delivery,
                delivery.event.capitalize(),
                reverse("alert-delivery-replay", args=[rule.workspace_id, rule.pk, delivery.pk]),
                names.get(delivery.endpoint_id, "deleted channel"),
            )
            for delivery in deliveries.newest_first()[:PAGE_SIZE]
        ],
        "silences": SILENCES.items(),
        "may_write": request.caller.may(Permission.ALERTS_WRITE),
    }


@require_POST
@workspace_page(Permission.ALERTS_WRITE)
def alert_change(request: PageRequest, rule_id: UUID) -> HttpResponse:
    """Silence, test, enable, disable or delete the rule, as `action` requests."""
    rule = _find(request, rule_id)
    action = request.POST.get("action")
    if action == "delete":
        rules.delete_rule(rule=rule)
        messages.success(request, f"{rule.name} was deleted.")
        return redirect("alert-list", rule.workspace_id)
    if action == "silence":
        minutes = request.POST.get("minutes", "")
        length = int(minutes) if minutes in map(str, SILENCES) else 60
        rules.silence_rule(rule=rule, until=timezone.now() + timedelta(minutes=length))
    elif action == "unsilence":
        rules.silence_rule(rule=rule, until=None)
    elif action == "test":
        count = notices.send_test(rule=rule)
        messages.success(request, f"{count} test notice{'s' * (count != 1)} sent.")
    elif action in {"enable", "disable"}:
        rules.update_rule(rule=rule, changes={"is_enabled": action == "enable"})
    return redirect("alert-detail", rule.workspace_id, rule.pk)


@require_POST
@workspace_page(Permission.ALERTS_WRITE)
def alert_channel_delete(request: PageRequest, rule_id: UUID, action_id: UUID) -> HttpResponse:
    rule = _find(request, rule_id)
    actions = AlertAction.objects.for_workspace(rule.workspace_id).filter(rule=rule)
    rules.remove_action(rule=rule, action=get_or_404(actions, pk=action_id))
    messages.success(request, "The channel was removed.")
    return redirect("alert-detail", rule.workspace_id, rule.pk)


@require_POST
@workspace_page(Permission.ALERTS_WRITE)
def alert_delivery_replay(request: PageRequest, rule_id: UUID, delivery_id: UUID) -> HttpResponse:
    """Send a finished delivery again."""
    rule = _find(request, rule_id)
    rows = Delivery.objects.for_workspace(rule.workspace_id).filter(subject_id=rule.pk)
    try:
        rules.replay_delivery(delivery=get_or_404(rows, pk=delivery_id))
        messages.success(request, "The notice is sent again.")
    except AppError as error:
        if error.status == 404:
            raise
        messages.error(request, error.detail)
    return redirect("alert-detail", rule.workspace_id, rule.pk)


def _find(request: PageRequest, rule_id: UUID) -> AlertRule:
    rows = AlertRule.objects.for_workspace(request.caller.workspace_id)
    return get_or_404(rows.select_related("project", "deployment"), pk=rule_id)
