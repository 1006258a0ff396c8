"""What the pages of people and places share."""

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
    """The person as one who acts on the workspace's organization; 403 without the permission."""
    caller = organization_caller_for(
        user=request.user, organization_id=request.caller.organization_id
    )
    if caller is None:
        raise errors.NotFound
    caller.require(permission)
    return caller


def save_form(form: Form, deed: Callable[[], object]) -> bool:
    """Whether the form was valid and its deed done; what the deed refuses the form says."""
    if not form.is_valid():
        return False
    try:
        deed()
    except errors.AppError as error:
        form.add_error(None, error.detail)
        return False
    return True


def page(
    request: HttpRequest, template: str, context: dict[str, Any], form: Form | None = None
) -> HttpResponse:
    """The page; 422 when its form is not valid."""
    status = 422 if form is not None and form.is_bound and form.errors else 200
    return render(request, template, context, status=status)
