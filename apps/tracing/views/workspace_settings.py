"""Workspace settings: prices, feedback keys, retention."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from apps.feedback.models import FeedbackConfig
from apps.feedback.services import configs
from apps.organizations.models import Workspace
from apps.organizations.permissions import Permission
from apps.trace_store.models import ModelPrice
from apps.trace_store.pricing.entries import PriceEntry
from apps.tracing.forms import FeedbackConfigForm, PriceForm, RetentionForm
from apps.tracing.services import prices, retention
from apps.web_ui.pages import PageRequest, form_page, save_form, workspace_page

PRICES_PER_PAGE = 100


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_prices(request: PageRequest) -> HttpResponse:
    """Show the price map; the form creates an entry or updates `price`."""
    workspace_id = request.caller.workspace_id
    edited = _find_price(workspace_id, request.GET.get("price", ""))
    form = PriceForm(
        request.POST or None, initial=PriceForm.initial_values(edited) if edited else None
    )

    def save() -> None:
        if edited is None:
            prices.create_price(workspace_id=workspace_id, **form.price_fields)
        else:
            prices.replace_price(price=edited, **form.price_fields)

    if request.method == "POST":
        request.caller.require(Permission.WORKSPACE_MANAGE)
    if save_form(form, save):
        messages.success(request, f"The price of {form.cleaned_data['name']} was saved.")
        return redirect("settings-prices", workspace_id)
    text = request.GET.get("q", "").strip().lower()[:200]
    entries = sorted(prices.list_prices(workspace_id), key=_by_provider)
    if text:
        entries = [
            entry for entry in entries if text in f"{entry.name} {entry.provider or ''}".lower()
        ]
    page = _page_number(request.GET.get("page", ""))
    begin, end = page * PRICES_PER_PAGE, (page + 1) * PRICES_PER_PAGE
    context = {
        "tab": "prices",
        "entries": [(entry, isinstance(entry, ModelPrice)) for entry in entries[begin:end]],
        "count": len(entries),
        "page": page,
        "next_page": page + 1 if len(entries) > end else None,
        "form": form,
        "edited": edited,
        "text": text,
        "may_write": request.caller.may(Permission.WORKSPACE_MANAGE),
    }
    return form_page(request, "tracing/prices.html", context, form)


@require_POST
@workspace_page(Permission.WORKSPACE_MANAGE)
def settings_price_delete(request: PageRequest, price_id: UUID) -> HttpResponse:
    prices.delete_price(price=prices.find_price(request.caller.workspace_id, price_id))
    messages.success(request, "Price deleted. Stored runs keep their cost.")
    return redirect("settings-prices", request.caller.workspace_id)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.FEEDBACK_READ)
def settings_feedback(request: PageRequest) -> HttpResponse:
    """Show and edit the feedback keys."""
    workspace_id = request.caller.workspace_id
    rows = list(FeedbackConfig.objects.for_workspace(workspace_id).order_by("key")[:500])
    edited = next((row for row in rows if row.key == request.GET.get("key")), None)
    form = FeedbackConfigForm(
        request.POST or None, initial=FeedbackConfigForm.initial_values(edited) if edited else None
    )

    def save() -> None:
        config, is_lower_score_better = form.config, form.cleaned_data["is_lower_score_better"]
        key = form.cleaned_data["key"]
        if any(row.key == key for row in rows):
            changes = {"feedback_config": config, "is_lower_score_better": is_lower_score_better}
            configs.change_config(workspace_id=workspace_id, lookup={"key": key}, changes=changes)
        else:
            configs.create_config(
                workspace_id=workspace_id,
                key=key,
                config=configs.parse_config(config),
                is_lower_score_better=is_lower_score_better,
                is_enforced=False,
            )

    if request.method == "POST":
        request.caller.require(Permission.FEEDBACK_WRITE)
    if save_form(form, save):
        messages.success(request, f"{form.cleaned_data['key']} was saved.")
        return redirect("settings-feedback", workspace_id)
    context = {
        "tab": "feedback",
        "rows": rows,
        "form": form,
        "edited": edited,
        "may_write": request.caller.may(Permission.FEEDBACK_WRITE),
    }
    return form_page(request, "tracing/feedback_configs.html", context, form)


@require_POST
@workspace_page(Permission.FEEDBACK_WRITE)
def settings_feedback_delete(request: PageRequest) -> HttpResponse:
    key = request.POST.get("key", "")
    configs.delete_config(workspace_id=request.caller.workspace_id, lookup={"key": key})
    messages.success(request, f"Feedback key {key} deleted. Existing feedback is kept.")
    return redirect("settings-feedback", request.caller.workspace_id)


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.WORKSPACE_READ)
def settings_retention(request: PageRequest) -> HttpResponse:
    """Show and edit the retention policy."""
    workspace_id = request.caller.workspace_id
    workspace = Workspace.objects.select_related("organization").get(pk=workspace_id)
    policy = retention.policy_for_workspace(workspace)
    form = RetentionForm(request.POST or None, initial=RetentionForm.initial_values(policy))

    def save() -> None:
        retention.set_policy(
            organization_id=workspace.organization_id,
            workspace_id=workspace_id,
            changes=form.changes,
            all_projects=form.cleaned_data["all_projects"],
        )

    if request.method == "POST":
        request.caller.require(Permission.WORKSPACE_MANAGE)
    if save_form(form, save):
        messages.success(request, "Retention saved. Expired traces are deleted within one day.")
        return redirect("settings-retention", workspace_id)
    context = {
        "tab": "retention",
        "form": form,
        "policy": policy,
        "may_write": request.caller.may(Permission.WORKSPACE_MANAGE),
    }
    return form_page(request, "tracing/retention.html", context, form)


def _by_provider(entry: ModelPrice | PriceEntry) -> tuple[bool, bool, str, str]:
    """Sort the workspace's own prices first, in their order, others by provider and name."""
    if isinstance(entry, ModelPrice):
        return False, False, "", ""
    return True, not entry.provider, entry.provider or "", entry.name.lower()


def _find_price(workspace_id: UUID, price_id: str) -> ModelPrice | None:
    try:
        key = UUID(price_id) if price_id else None
    except ValueError:
        return None
    return ModelPrice.objects.for_workspace(workspace_id).filter(pk=key).first() if key else None


def _page_number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 6 else 0
