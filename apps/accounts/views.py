"""Account pages that allauth does not have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, cast

from allauth.usersessions.models import UserSession
from allauth.usersessions.views import list_usersessions
from django import forms
from django.contrib import messages
from django.contrib.auth.password_validation import password_validators_help_texts
from django.contrib.auth.views import redirect_to_login
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from apps.accounts import sign_in
from apps.audit.actions import Action
from apps.core import errors
from apps.organizations.models import User
from apps.organizations.services.members import record_user_action, update_profile
from apps.web_ui.time_zone import list_zones


class ProfileForm(forms.ModelForm[User]):
    class Meta:
        model = User
        fields = ("name", "time_zone")
        labels = {"name": "Name"}
        widgets = {"name": forms.TextInput(attrs={"autocomplete": "name"})}

    time_zone = forms.ChoiceField(
        required=False,
        label="Time zone",
        choices=lambda: [("", "The browser's"), *((zone, zone) for zone in list_zones())],
        help_text="All pages show times in this zone.",
    )


@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """The user's name and time zone."""
    user = cast("User", request.user)
    form = ProfileForm(request.POST or None, instance=User.objects.get(pk=user.pk))
    if request.method == "POST" and form.is_valid():
        update_profile(user_id=user.pk, **form.cleaned_data)
        messages.success(request, "Profile saved.")
        return redirect("account-profile")
    status = 422 if form.errors else 200
    return TemplateResponse(request, "account/profile.html", {"form": form}, status=status)


@require_http_methods(["GET", "POST"])
def sessions(request: HttpRequest) -> HttpResponse:
    """List the sessions; POST ends all other sessions."""
    response: HttpResponse = list_usersessions(request)
    if request.method == "POST":
        record_user_action(Action.USER_SESSION_REVOKED, cast("User", request.user))
    return response


@require_POST
def end_session(request: HttpRequest, session_id: int) -> HttpResponse:
    """End one session."""
    session = UserSession.objects.filter(pk=session_id, user_id=request.user.pk).first()
    if session is None:
        raise errors.NotFound
    session.end()
    record_user_action(
        Action.USER_SESSION_REVOKED, cast("User", request.user), before={"ip": session.ip}
    )
    return redirect("usersessions_list")


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
