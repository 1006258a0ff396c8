"""Settings pages of prompt webhooks and their delivery logs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from apps.core.errors import Conflict
from apps.core.tenancy import get_or_404
from apps.organizations.permissions import Permission
from apps.prompts.models import PromptWebhook, Repository, WebhookEvent
from apps.prompts.services import webhooks as services
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page
from apps.webhooks import endpoints

PAGE_SIZE = 50
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
    headers = forms.CharField(
        required=False,
        max_length=20_000,
        label="Headers",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="One `Name: value` in each line. Values are stored encrypted and not shown.",
    )

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

    def clean_headers(self) -> dict[str, str]:
        headers = {}
        for line in self.cleaned_data["headers"].splitlines():
            name, separator, value = line.partition(":")
            if not line.strip():
                continue
            if not separator:
                raise forms.ValidationError("Write each header as `Name: value`.")
            headers[name.strip()] = value.strip()
        return headers


@dataclass
class IssuedSecret:
    """A signing secret, which is shown once."""

    secret: str = ""
    webhook: PromptWebhook | None = None


@never_cache
@require_http_methods(["GET", "POST"])
@workspace_page(Permission.PROMPTS_READ)
def settings_prompt_webhooks(request: PageRequest) -> HttpResponse:
    """List the webhooks; the form creates one and shows its signing secret once."""
    workspace_id = request.caller.workspace_id
    form, issued = PromptWebhookForm(workspace_id, request.POST or None), IssuedSecret()
    if request.method == "POST":
        request.caller.require(Permission.PROMPTS_WRITE)

        def create() -> None:
            fields = form.cleaned_data
            issued.webhook, issued.secret = services.create_webhook(
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
    context = {
        "form": form,
        "issued": issued,
        "rows": [
            (row, [names[pk] for pk in row.include_prompts if pk in names], _events_of(row))
            for row in rows
        ],
        "may_write": request.caller.may(Permission.PROMPTS_WRITE),
    }
    return form_page(request, "prompts/webhooks.html", context, form)


@require_GET
@workspace_page(Permission.PROMPTS_READ)
def settings_prompt_webhook(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """List the deliveries of a webhook with their attempts, newest first."""
    webhook = _find(request, webhook_id)
    text = request.GET.get("from", "")
    offset = int(text) if text.isdecimal() and len(text) < 8 else 0
    deliveries = list(endpoints.list_deliveries(webhook)[offset : offset + PAGE_SIZE + 1])
    context = {
        "webhook": webhook,
        "events": _events_of(webhook),
        "rows": [(row, _EVENT_NAMES[row.event]) for row in deliveries[:PAGE_SIZE]],
        "next_offset": offset + PAGE_SIZE if len(deliveries) > PAGE_SIZE else None,
        "may_write": request.caller.may(Permission.PROMPTS_WRITE),
    }
    return render(request, "prompts/webhook_deliveries.html", context)


@never_cache
@require_POST
@workspace_page(Permission.PROMPTS_WRITE)
def settings_prompt_webhook_secret(request: PageRequest, webhook_id: UUID) -> HttpResponse:
    """Replace the signing secret and show the new one."""
    webhook = _find(request, webhook_id)
    issued = IssuedSecret(services.replace_secret(webhook=webhook), webhook)
    return render(request, "prompts/webhook_secret.html", {"issued": issued})


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
