"""Settings pages of prompt webhooks and their delivery logs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.errors import Conflict
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.prompts.models import PromptWebhook, Repository, WebhookEvent
from apps.prompts.services import webhooks as services
from apps.web_ui.pages import PageRequest, form_page, read_offset, save_form, workspace_page
from apps.web_ui.templatetags.web_ui import short_id
from apps.webhooks import endpoints
from apps.webhooks.models import Delivery
from apps.webhooks.pages import PAGE_SIZE, DeliveryRow, EndpointRow, HeadersField

_EVENTS = [
    (WebhookEvent.COMMIT, "Commits"),
    (WebhookEvent.TAG_CREATE, "New tags"),
    (WebhookEvent.TAG_UPDATE, "Moved tags"),
]
_EVENT_NAMES = dict(WebhookEvent.choices)


class PromptWebhookForm(forms.Form):
    url = forms.CharField(max_length=4096, label="Address", help_text="It receives a POST.")
    triggers = forms.MultipleChoiceField(
        choices=_EVENTS,
        initial=[WebhookEvent.COMMIT],
        label="Events",
        widget=forms.CheckboxSelectMultiple,
    )
    prompts = forms.CharField(
        required=False,
        max_length=4096,
        label="Prompts",
        help_text="Names, separated by commas. Empty: all prompts of the workspace.",
    )
    headers = HeadersField()

    def __init__(self, workspace_id: UUID, data: object = None) -> None:
        super().__init__(data)  # type: ignore[arg-type]  # a query dictionary or None
        self.workspace_id = workspace_id

    def clean_prompts(self) -> list[UUID]:
        names = {name.strip() for name in self.cleaned_data["prompts"].split(",")} - {""}
        rows = Repository.objects.for_workspace(self.workspace_id).filter(handle__in=names)
        ids = dict(rows.values_list("handle", "pk"))
        if unknown := sorted(names - set(ids)):
            raise forms.ValidationError(f"There is no prompt {unknown[0]}.")
        return list(ids.values())


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_READ)
def settings_prompt_webhooks(request: PageRequest) -> HttpResponse:
    """List the webhooks; the form creates one and shows its signing secret once."""
    workspace_id = request.caller.workspace_id
    form = PromptWebhookForm(workspace_id, request.POST or None)
    context: dict[str, Any] = {"title": "Prompt webhooks"}
    if request.method == "POST":
        request.caller.require(Permission.PROMPTS_WRITE)

        def create() -> None:
            fields = form.cleaned_data
            context["new_webhook"], context["secret"] = services.create_webhook(
                workspace_id=workspace_id,
                fields={
                    "url": fields["url"],
                    "triggers": fields["triggers"],
                    "include_prompts": fields["prompts"],
                    "headers": fields["headers"],
                },
            )

        if save_form(form, create):
            form = PromptWebhookForm(workspace_id)
    rows = services.webhooks_of(workspace_id)
    included = {pk for row in rows for pk in row.include_prompts}
    names = dict(
        Repository.objects.for_workspace(workspace_id)
        .filter(pk__in=included)
        .values_list("pk", "handle")
    )
    context |= {
        "form": form,
        "rows": [_endpoint_row(row, names) for row in rows],
        "may_write": request.caller.may(Permission.PROMPTS_WRITE),
    }
    return form_page(request, "prompts/webhooks.html", context, form)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def settings_prompt_webhook(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """List the deliveries of a webhook with their attempts, newest first."""
    webhook = _find(request, webhook_id)
    offset = read_offset(request)
    deliveries = list(endpoints.list_deliveries(webhook)[offset : offset + PAGE_SIZE + 1])
    context = {
        "webhook": webhook,
        "events": _events_of(webhook),
        "rows": [_delivery_row(row) for row in deliveries[:PAGE_SIZE]],
        "next_url": f"?from={offset + PAGE_SIZE}" if len(deliveries) > PAGE_SIZE else "",
        "may_write": request.caller.may(Permission.PROMPTS_WRITE),
    }
    return render(request, "prompts/webhook_deliveries.html", context)


@never_cache
@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def settings_prompt_webhook_secret(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Replace the signing secret and show the new one."""
    webhook = _find(request, webhook_id)
    context = {"webhook": webhook, "secret": services.replace_secret(webhook=webhook)}
    return render(request, "prompts/webhook_secret.html", context)


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def settings_prompt_webhook_delete(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    webhook = _find(request, webhook_id)
    services.delete_webhook(webhook=webhook)
    messages.success(request, "The webhook was deleted.")
    return redirect("settings-prompt-webhooks", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def settings_prompt_webhook_replay(
    request: PageRequest, webhook_id: UUID, delivery_id: UUID
) -> HttpResponse:
    """Send a finished delivery again."""
    webhook = _find(request, webhook_id)
    delivery = get_or_404(endpoints.list_deliveries(webhook), pk=delivery_id)
    try:
        endpoints.replay(delivery)
        messages.success(request, "The delivery is sent again.")
    except Conflict as error:
        messages.error(request, error.detail)
    return redirect("settings-prompt-webhook", request.caller.workspace_id, webhook.pk)


def _find(request: PageRequest, webhook_id: UUID) -> PromptWebhook:
    rows = PromptWebhook.objects.for_workspace(request.caller.workspace_id)
    return get_or_404(rows, pk=webhook_id)


def _events_of(webhook: PromptWebhook) -> str:
    return ", ".join(label.lower() for event, label in _EVENTS if event in webhook.triggers)


def _endpoint_row(webhook: PromptWebhook, prompt_names: dict[UUID, str]) -> EndpointRow:
    names = [prompt_names[pk] for pk in webhook.include_prompts if pk in prompt_names]
    ids = [webhook.workspace_id, webhook.pk]
    return EndpointRow(
        webhook,
        ", ".join(names) or ("deleted prompts" if webhook.include_prompts else "all prompts"),
        _events_of(webhook),
        reverse("settings-prompt-webhook", args=ids),
        reverse("settings-prompt-webhook-delete", args=ids),
    )


def _delivery_row(delivery: Delivery) -> DeliveryRow:
    payload, workspace_id = delivery.payload, delivery.workspace_id
    name, commit = payload["prompt_name"], payload["commit_hash"]
    ids = [workspace_id, delivery.endpoint_id, delivery.pk]
    tag = f" {payload['tag_name']}" if payload.get("tag_name") else ""
    return DeliveryRow(
        delivery,
        f"{_EVENT_NAMES[delivery.event]}{tag}",
        reverse("settings-prompt-webhook-replay", args=ids),
        f"{name}:{short_id(commit)}",
        f"{reverse('prompt-detail', args=[workspace_id, name])}?commit={commit[:12]}",
    )
