"""Decorators that adapt allauth's views."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any

from django.contrib.auth.password_validation import password_validators_help_texts
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache

from apps.accounts import sign_in

View = Callable[..., HttpResponseBase]


def public_page(view: View) -> View:
    """A page without authentication; an invalid form is 422."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        return _complete(request, _atomic_post(request, view, *args, **kwargs))

    return never_cache(page)


def account_page(view: View) -> View:
    """A page of the signed-in user; others are redirected to the sign-in page and back."""

    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect_to_login(request.get_full_path())
        return _complete(request, _atomic_post(request, view, *args, **kwargs))

    return never_cache(page)


def _atomic_post(request: HttpRequest, view: View, *args: Any, **kwargs: Any) -> HttpResponseBase:
    """Run a POST in a transaction with its audit entry, which may be refused."""
    if request.method != "POST":
        return view(request, *args, **kwargs)
    with transaction.atomic():
        return view(request, *args, **kwargs)


def _complete(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if isinstance(response, TemplateResponse):
        page_context = response.context_data = (
            response.context_data or {}
        ) | sign_in.sign_in_context(request)
        form = page_context.get("form")
        fields = getattr(form, "fields", {})
        if "password1" in fields:
            # Django's help text is an HTML list; our fields show one sentence.
            fields["password1"].help_text = " ".join(password_validators_help_texts())
        for name in {"password", "oldpassword"} & set(fields):
            fields[name].help_text = ""  # allauth's HTML link; the templates have one
        is_invalid = request.method == "POST" and getattr(form, "errors", None)
        if is_invalid and response.status_code == HTTPStatus.OK:
            response.status_code = HTTPStatus.UNPROCESSABLE_ENTITY
    return response
