"""Tag keys and values of a workspace."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.db.models import Count, Prefetch
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from apps.core import errors
from apps.core.tenancy import get_or_404
from apps.organizations.forms import TagKeyForm, TagValueForm
from apps.organizations.models import TagKey, TagValue
from apps.organizations.page_helpers import page, save_form
from apps.organizations.permissions import Permission
from apps.organizations.services import tags
from apps.web_ui.pages import PageRequest, workspace_page


@require_http_methods(["GET", "POST"])
@workspace_page(Permission.TAGS_READ)
def setting_tags(request: PageRequest) -> HttpResponse:
    """List the keys with their values; the form adds a key."""
    workspace_id = request.caller.workspace_id
    form = TagKeyForm(request.POST or None)
    if request.method == "POST":
        request.caller.require(Permission.TAGS_WRITE)

        def add() -> None:
            tags.create_key(workspace_id=workspace_id, **form.cleaned_data)

        if save_form(form, add):
            messages.success(request, f"{form.cleaned_data['key']} was added.")
            return redirect("setting-tags", workspace_id)
    values = TagValue.objects.for_workspace(workspace_id).annotate(uses=Count("taggings"))
    keys = TagKey.objects.for_workspace(workspace_id).order_by("key")
    context = {
        "form": form,
        "keys": keys.prefetch_related(Prefetch("values", values.order_by("value"))),
        "may_write": request.caller.may(Permission.TAGS_WRITE),
    }
    return page(request, "organizations/tags.html", context, form)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def setting_tag_key_delete(request: PageRequest, tag_key_id: UUID) -> HttpResponse:
    row = get_or_404(TagKey.objects.for_workspace(request.caller.workspace_id), pk=tag_key_id)
    tags.delete_key(row=row)
    messages.success(request, f"{row.key} was deleted and removed from all resources.")
    return redirect("setting-tags", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def setting_tag_value_add(request: PageRequest, tag_key_id: UUID) -> HttpResponse:
    key = get_or_404(TagKey.objects.for_workspace(request.caller.workspace_id), pk=tag_key_id)
    form = TagValueForm(request.POST)
    if not form.is_valid():
        raise errors.Invalid("The value must have 1 to 100 characters.")
    tags.create_value(key=key, value=form.cleaned_data["value"])
    return redirect("setting-tags", request.caller.workspace_id)


@require_POST
@workspace_page(Permission.TAGS_WRITE)
def setting_tag_value_delete(
    request: PageRequest, tag_key_id: UUID, tag_value_id: UUID
) -> HttpResponse:
    rows = TagValue.objects.for_workspace(request.caller.workspace_id)
    row = get_or_404(rows, pk=tag_value_id, tag_key_id=tag_key_id)
    tags.delete_value(row=row)
    messages.success(request, f"{row.value} was deleted and removed from all resources.")
    return redirect("setting-tags", request.caller.workspace_id)
