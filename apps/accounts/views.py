"""Account pages that allauth does not have."""

from __future__ import annotations

from typing import cast

from allauth.usersessions.models import UserSession
from allauth.usersessions.views import list_usersessions
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods, require_POST

from apps.audit.actions import Action
from apps.core import errors
from apps.organizations.models import User
from apps.organizations.services.profile import record_user_action, rename


class ProfileForm(forms.ModelForm[User]):
    class Meta:
        model = User
        fields = ("name",)
        labels = {"name": "Name"}
        widgets = {"name": forms.TextInput(attrs={"autocomplete": "name"})}


@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """The user's name, and links to the other account pages."""
    user = cast("User", request.user)
    form = ProfileForm(request.POST or None, instance=User.objects.get(pk=user.pk))
    if request.method == "POST" and form.is_valid():
        rename(user_id=user.pk, name=form.cleaned_data["name"])
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
