"""The audit log: search and export."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import groupby

from django import forms
from django.http import HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from apps.audit.actions import Action
from apps.audit.presentation import FORMATS, action_label, export_lines, present
from apps.audit.search import Search, get_page
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.callers import OrganizationCaller
from apps.organizations.permissions import OrganizationPermission, Permission
from apps.web_ui.pages import PageRequest, organization_caller, workspace_page

KINDS = {
    kind: list(actions)
    for kind, actions in groupby(sorted(Action), lambda action: action.partition(".")[0])
}


class SearchForm(forms.Form):
    is_search = True
    """Search forms do not mark their fields as optional."""

    action = forms.ChoiceField(
        required=False,
        label="Action",
        choices=[
            ("", "All actions"),
            *(
                (
                    action_label(kind),
                    [
                        (kind, f"{action_label(kind)}: all"),
                        *((str(action), action_label(action)) for action in actions),
                    ],
                )
                for kind, actions in KINDS.items()
            ),
        ],
    )
    actor = forms.CharField(required=False, label="Actor", max_length=254)
    target = forms.CharField(required=False, label="Target", max_length=200)
    begin = forms.DateField(
        required=False, label="From", widget=forms.DateInput(attrs={"type": "date"})
    )
    end = forms.DateField(
        required=False, label="To", widget=forms.DateInput(attrs={"type": "date"})
    )

    def search(self, organization: OrganizationCaller) -> Search:
        """Return the search; invalid fields are ignored."""
        self.is_valid()
        data = self.cleaned_data
        begin, end = data.get("begin"), data.get("end")
        return Search(
            organization_id=organization.organization_id,
            action=data.get("action", ""),
            actor=data.get("actor", ""),
            target=data.get("target", ""),
            begin=begin and _midnight(begin),
            end=end and _midnight(end + timedelta(days=1)),
        )


def _midnight(day: date) -> datetime:
    """Return the beginning of the day in the user's time zone."""
    return timezone.make_aware(datetime.combine(day, datetime.min.time()))


@require_GET
@workspace_page(Permission.WORKSPACE_READ)
def settings_audit(request: PageRequest) -> HttpResponse:
    """List the entries of the whole organization, newest first."""
    organization = organization_caller(request, OrganizationPermission.AUDIT_READ)
    form = SearchForm(request.GET)
    search = form.search(organization)
    entries, cursor = get_page(search, cursor=request.GET.get("cursor") or None)
    context = {
        "tab": "audit",
        "form": form,
        "entries": [present(entry) for entry in entries],
        "next_cursor": cursor,
        "is_first": not request.GET.get("cursor"),
        "formats": list(FORMATS),
        "query_filters": _query_filters(request.GET),
    }
    return render(request, "audit/log.html", context)


@require_POST
@workspace_page(Permission.WORKSPACE_READ)
def settings_audit_export(request: PageRequest) -> HttpResponseBase:
    """Export the search results as a file. The export itself is recorded."""
    organization = organization_caller(request, OrganizationPermission.AUDIT_READ)
    kind = request.POST.get("format", "")
    if kind not in FORMATS:
        raise errors.Invalid(f"`format` must be one of {', '.join(FORMATS)}.")
    search = SearchForm(request.POST).search(organization)
    record(
        Action.AUDIT_EXPORTED,
        Target("audit"),
        after={
            "format": kind,
            "start_time": search.begin,
            "end_time": search.end,
            "filters": search.filters,
        },
        organization_id=organization.organization_id,
    )
    name = f"audit-log-{datetime.now(UTC):%Y-%m-%d}.{kind}"
    return StreamingHttpResponse(
        export_lines(search, kind),
        content_type=FORMATS[kind],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _query_filters(query: QueryDict) -> dict[str, str]:
    return {name: query.get(name, "") for name in SearchForm.base_fields if query.get(name)}
