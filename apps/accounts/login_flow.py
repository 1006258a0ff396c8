"""What comes between a right password and being in: a proved address, a second factor."""

from __future__ import annotations

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from django.http import HttpRequest, HttpResponse

from apps.organizations.models import User


def login(request: HttpRequest, user: User, after: str) -> HttpResponse:
    """Sign the person in and lead them to `after`, or to what still has to be shown first."""
    flow = Login(user=user, redirect_url=after, email=user.email)
    response: HttpResponse = perform_password_login(request, {"email": user.email}, flow)
    return response
