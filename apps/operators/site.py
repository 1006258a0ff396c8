"""The admin site of operators, with the system status on its index page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin, messages
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, URLResolver, path
from django.views.decorators.http import require_POST

from apps.core import errors, feature_switches
from apps.core.tenancy import get_or_404
from apps.operators import impersonation, processes, storage, system_status
from apps.operators.feature_switches import set_switch
from apps.organizations.models import User


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
            *super().get_urls(),
        ]

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
            "workers": processes.workers(),
            "hosts": processes.hosts(),
        }
        return TemplateResponse(request, "admin/operators/processes.html", context)

    def storage(self, request: HttpRequest) -> HttpResponse:
        """Partitions with rows and size, and retention."""
        context = {
            **self.each_context(request),
            "title": "Partitions and retention",
            "tables": storage.tables(system_status.partitions()),
            "retention": storage.default_retention(),
            "exceptions": storage.retention_overrides(),
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
