"""The admin site of operators, with the system status on its index page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.auth.views import redirect_to_login
from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST
from waffle.models import Switch

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors, feature_switches
from apps.core.feature_switches import FEATURES
from apps.core.tenancy import get_or_404
from apps.operators import impersonation, processes, system_status
from apps.organizations.models import User


@transaction.atomic
def set_switch(name: str, *, is_on: bool) -> None:
    """Switch the feature on or off. Safe to repeat; a change is recorded in the audit log."""
    if name not in FEATURES:
        raise errors.NotFound
    switch = Switch.objects.select_for_update().filter(name=name).first()
    before = FEATURES[name].default() if switch is None else switch.active
    Switch.objects.update_or_create(name=name, defaults={"active": is_on})
    if before != is_on:
        record(
            Action.SWITCH_CHANGED,
            Target("switch", name, name.replace("_", " ")),
            before={"on": before},
            after={"on": is_on},
        )


class OperatorsSite(admin.AdminSite):
    site_header = site_title = "Slipway operators"
    index_title = "System status"
    index_template = "admin/operators/index.html"

    def get_urls(self) -> list[URLPattern | URLResolver]:
        def operator_view(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
            wrapped: Callable[..., HttpResponse] = self.admin_view(view)
            return wrapped

        return [
            path("processes/", operator_view(self.processes), name="processes"),
            path("storage/", operator_view(self.storage), name="storage"),
            path("switches/", operator_view(self.switches), name="switches"),
            path(
                "switches/<slug:name>/",
                operator_view(require_POST(self.set_switch)),
                name="switch-set",
            ),
            path(
                "impersonate/<uuid:user_id>/",
                operator_view(require_POST(self.impersonate)),
                name="impersonate",
            ),
            # The account page limits attempts at the old password.
            path(
                "password_change/",
                operator_view(lambda _: redirect("account_change_password")),
                name="password_change",
            ),
            *super().get_urls(),
        ]

    def login(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect to the sign-in page and back; 403 for users who are not operators.

        Django's own form checks a password without second factor and without attempt limit.
        """
        index_url = reverse("admin:index")
        next_url = request.GET.get(REDIRECT_FIELD_NAME, index_url)
        is_safe = url_has_allowed_host_and_scheme(next_url, allowed_hosts=None)
        # `redirect` would take a word without a slash for the name of a view.
        if not is_safe or not next_url.startswith("/"):
            next_url = index_url
        if self.has_permission(request):
            return redirect(next_url)
        if request.user.is_authenticated:
            raise errors.Forbidden("Only operators can open the admin site.")
        return redirect_to_login(next_url, reverse("sign-in"))

    def index(self, request: HttpRequest, extra_context: Any = None) -> TemplateResponse:
        try:
            status = system_status.collect()
        except DatabaseError:
            status = None
        return super().index(request, {**(extra_context or {}), "status": status})

    def processes(self, request: HttpRequest) -> HttpResponse:
        """Workers, their tasks, queues and graph hosts."""
        context = {
            **self.each_context(request),
            "title": "Processes and queues",
            "status": system_status.collect(),
            "workers": processes.list_workers(),
            "hosts": processes.list_hosts(),
        }
        return TemplateResponse(request, "admin/operators/processes.html", context)

    def storage(self, request: HttpRequest) -> HttpResponse:
        """Partitions with rows and size, and retention."""
        context = {
            **self.each_context(request),
            "title": "Partitions and retention",
            "tables": system_status.group_by_table(system_status.list_partitions()),
            "retention": system_status.list_default_retention(),
            "overrides": system_status.list_retention_overrides(),
        }
        return TemplateResponse(request, "admin/operators/storage.html", context)

    def switches(self, request: HttpRequest) -> HttpResponse:
        context = {
            **self.each_context(request),
            "title": "Feature flags",
            "features": [
                (name, feature.description, feature_switches.is_enabled(name))
                for name, feature in feature_switches.FEATURES.items()
            ],
        }
        return TemplateResponse(request, "admin/operators/switches.html", context)

    def set_switch(self, request: HttpRequest, name: str) -> HttpResponse:
        """Switch a feature on or off. Requires a superuser."""
        if not request.user.is_superuser:
            raise errors.Forbidden
        set_switch(name, is_on=request.POST.get("on") == "1")
        messages.success(request, "Saved. The change takes effect within a second.")
        return redirect("admin:switches")

    def impersonate(self, request: HttpRequest, user_id: Any) -> HttpResponse:
        """Start impersonating the user; a banner on every page ends it."""
        impersonation.start(request, get_or_404(User.objects.all(), pk=user_id))
        return redirect("home")
