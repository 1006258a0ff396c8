"""Pages about one's own account that allauth does not have."""

from __future__ import annotations

from typing import cast

from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from apps.core import errors
from apps.organizations.models import User


class ProfileForm(forms.ModelForm[User]):
    class Meta:
        model = User
        fields = ("name",)
        labels = {"name": "Name"}
        widgets = {"name": forms.TextInput(attrs={"autocomplete": "name"})}


@require_http_methods(["GET", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """The person's name, and the way to everything else about their account."""
    person = cast("User", request.user)
    form = ProfileForm(request.POST or None, instance=User.objects.get(pk=person.pk))
    if request.method == "POST" and form.is_valid():
        form.save()
        messages.success(request, "Saved.")
        return redirect("account-profile")
    status = 422 if form.errors else 200
    return render(request, "account/profile.html", {"form": form}, status=status)


@require_POST
def end_session(request: HttpRequest, session_id: int) -> HttpResponse:
    """Sign the person out of one of their browsers."""
    session = UserSession.objects.filter(pk=session_id, user_id=request.user.pk).first()
    if session is None:
        raise errors.NotFound
    session.end()
    return redirect("usersessions_list")
