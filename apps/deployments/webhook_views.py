"""Settings pages of deployment webhooks and their delivery logs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.core.errors import Conflict
from apps.core.tenancy import get_or_404
from apps.deployments.models import Deployment, DeploymentEvent, DeploymentWebhook
from apps.deployments.services import webhooks as services
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page
from apps.webhooks import endpoints
from apps.webhooks.models import Delivery
from apps.webhooks.pages import PAGE_SIZE, DeliveryRow, EndpointRow, HeadersField

_EVENT_NAMES = {
    DeploymentEvent.DEPLOYED: "Revision deployed",
    DeploymentEvent.FAILED: "Revision failed",
    DeploymentEvent.INTERRUPTED: "Revision stopped",
}


class DeploymentWebhookForm(forms.Form):
    url = forms.CharField(max_length=4096, label="Address", help_text="It receives a POST.")
    events = forms.MultipleChoiceField(
        choices=list(_EVENT_NAMES.items()),
        initial=[DeploymentEvent.DEPLOYED, DeploymentEvent.FAILED],
        label="Events",
        widget=forms.CheckboxSelectMultiple,
    )
    deployment = forms.ModelChoiceField(
        queryset=Deployment.unscoped.none(),
        required=False,
        label="Deployment",
        empty_label="All deployments",
    )
    headers = HeadersField()

    def __init__(self, workspace_id: UUID, data: Any = None) -> None:
        super().__init__(data)
        rows = Deployment.objects.for_workspace(workspace_id).present().order_by("name")
        self.fields["deployment"].queryset = rows  # type: ignore[attr-defined]


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def settings_deployment_webhooks(request: PageRequest) -> HttpResponse:
    """List the webhooks; the form creates one and shows its signing secret once."""
    workspace_id = request.caller.workspace_id
    form = DeploymentWebhookForm(workspace_id, request.POST or None)
    context: dict[str, Any] = {"title": "Deployment webhooks"}
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)

        def create() -> None:
            context["new_webhook"], context["secret"] = services.create_webhook(
                workspace_id=workspace_id, fields=form.cleaned_data
            )

        if save_form(form, create):
            form = DeploymentWebhookForm(workspace_id)
    rows = DeploymentWebhook.objects.for_workspace(workspace_id).select_related("deployment")
    context |= {
        "form": form,
        "rows": [_endpoint_row(row) for row in rows.order_by("created_at", "pk")],
        "may_write": request.caller.may(Permission.DEPLOYMENTS_WRITE),
    }
    return form_page(request, "deployments/webhooks.html", context, form)


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.DEPLOYMENTS_READ)
def settings_deployment_webhook(request: PageRequest, deployment_webhook_id: UUID) -> HttpResponse:
    """List the deliveries, newest first. POST sends a test, or replaces and shows the secret."""
    webhook = _find(request, deployment_webhook_id)
    secret = ""
    if request.method == "POST":
        request.caller.require(Permission.DEPLOYMENTS_WRITE)
        if request.POST.get("action") == "secret":
            secret = services.replace_secret(webhook=webhook)
        else:
            services.send_test(webhook=webhook)
            messages.success(request, "The test is sent.")
            return redirect("settings-deployment-webhook", webhook.workspace_id, webhook.pk)
    offset = read_offset(request)
    deliveries = list(endpoints.list_deliveries(webhook)[offset : offset + PAGE_SIZE + 1])
    context = {
        "webhook": webhook,
        "secret": secret,
        "events": _describe_events(webhook),
        "rows": [_delivery_row(row) for row in deliveries[:PAGE_SIZE]],
        "next_url": f"?from={offset + PAGE_SIZE}" if len(deliveries) > PAGE_SIZE else "",
        "may_write": request.caller.may(Permission.DEPLOYMENTS_WRITE),
    }
    return form_page(request, "deployments/webhook_deliveries.html", context)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def settings_deployment_webhook_replay(
    request: PageRequest, deployment_webhook_id: UUID, delivery_id: UUID
) -> HttpResponse:
    """Send a finished delivery again."""
    webhook = _find(request, deployment_webhook_id)
    delivery = get_or_404(endpoints.list_deliveries(webhook), pk=delivery_id)
    try:
        endpoints.replay(delivery)
        messages.success(request, "The delivery is sent again.")
    except Conflict as error:
        messages.error(request, error.detail)
    return redirect("settings-deployment-webhook", webhook.workspace_id, webhook.pk)


@require_POST
@workspace_page(Permission.DEPLOYMENTS_WRITE)
def settings_deployment_webhook_delete(
    request: PageRequest, deployment_webhook_id: UUID
) -> HttpResponse:
    services.delete_webhook(webhook=_find(request, deployment_webhook_id))
    messages.success(request, "The webhook was deleted.")
    return redirect("settings-deployment-webhooks", request.caller.workspace_id)


def _find(request: PageRequest, webhook_id: UUID) -> DeploymentWebhook:
    rows = DeploymentWebhook.objects.for_workspace(request.caller.workspace_id)
    return get_or_404(rows.select_related("deployment"), pk=webhook_id)


def _describe_events(webhook: DeploymentWebhook) -> str:
    return ", ".join(
        name.lower() for event, name in _EVENT_NAMES.items() if event in webhook.events
    )


def _endpoint_row(webhook: DeploymentWebhook) -> EndpointRow:
    ids = [webhook.workspace_id, webhook.pk]
    return EndpointRow(
        webhook,
        webhook.deployment.name if webhook.deployment is not None else "all deployments",
        _describe_events(webhook),
        reverse("settings-deployment-webhook", args=ids),
        reverse("settings-deployment-webhook-delete", args=ids),
    )


def _delivery_row(delivery: Delivery) -> DeliveryRow:
    payload = delivery.payload
    replay_url = reverse(
        "settings-deployment-webhook-replay",
        args=[delivery.workspace_id, delivery.endpoint_id, delivery.pk],
    )
    if delivery.event == services.TEST:
        return DeliveryRow(delivery, "Test", replay_url)
    return DeliveryRow(
        delivery,
        _EVENT_NAMES[DeploymentEvent(delivery.event)],
        replay_url,
        f"{payload['deployment_name']}, revision {payload['revision_number']}",
        payload["url"],
    )
