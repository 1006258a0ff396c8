"""The steps between the password check and the session: email verification, second factor."""

from __future__ import annotations

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from django.http import HttpRequest, HttpResponse

from apps.organizations.models import User


def login(request: HttpRequest, user: User, after: str) -> HttpResponse:
    """Sign the user in and redirect to `after`, or to the next required step."""
    flow = Login(user=user, redirect_url=after, email=user.email)
    response: HttpResponse = perform_password_login(request, {"email": user.email}, flow)
    return response
