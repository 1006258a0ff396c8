"""Helpers shared by the settings pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.forms import Form
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from apps.core import errors
from apps.core.callers import OrganizationCaller
from apps.organizations.services import organization_caller_for
from apps.web_ui.pages import PageRequest


def organization_caller(request: PageRequest, permission: str) -> OrganizationCaller:
    """Return the user's caller on the workspace's organization; 403 without the permission."""
    caller = organization_caller_for(
        user=request.user, organization_id=request.caller.organization_id
    )
    if caller is None:
        raise errors.NotFound
    caller.require(permission)
    return caller


def save_form(form: Form, action: Callable[[], object]) -> bool:
    """Run the action for a valid form; an `AppError` becomes a form error. True on success."""
    if not form.is_valid():
        return False
    try:
        action()
    except errors.AppError as error:
        form.add_error(None, error.detail)
        return False
    return True


def page(
    request: HttpRequest, template: str, context: dict[str, Any], form: Form | None = None
) -> HttpResponse:
    """Render the page; status 422 if its form is invalid."""
    status = 422 if form is not None and form.is_bound and form.errors else 200
    return render(request, template, context, status=status)
