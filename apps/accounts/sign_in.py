"""Sign-in: methods, steps after the password check, pending invitation and attempt limit."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.account.utils import get_next_redirect_url
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from redis import RedisError

from apps.core import errors, feature_switches
from apps.organizations.models import Invitation, User
from apps.organizations.services.invitations import get_by_token
from apps.rate_limits.counters import count_custom
from apps.rate_limits.identity import network

MAX_PER_EMAIL = 20, 600
"""Attempts and seconds, per client address and email."""
MAX_PER_ADDRESS = 200, 600
"""Attempts and seconds, per client address."""
_INVITATION_PATH = "/invitations/"


def sign_in_context(request: HttpRequest) -> dict[str, Any]:
    """Return the available sign-in and sign-up methods."""
    return {
        "can_mail": bool(settings.EMAIL_HOST),
        "providers": settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"],
        "may_sign_up": feature_switches.is_enabled("sign_up")
        or get_pending_invitation(request) is not None,
        "invitation": get_pending_invitation(request),
    }


def login(request: HttpRequest, user: User, redirect_url: str) -> HttpResponse:
    """Sign the user in and redirect, or start email verification or the second factor."""
    flow = Login(user=user, redirect_url=redirect_url, email=user.email)
    response: HttpResponse = perform_password_login(request, {"email": user.email}, flow)
    return response


def get_pending_invitation(request: HttpRequest) -> Invitation | None:
    """Return the open invitation that the request's redirect URL names, if any."""
    next_path = get_next_redirect_url(request) or ""
    if not next_path.startswith(_INVITATION_PATH):
        return None
    try:
        return get_by_token(next_path.removeprefix(_INVITATION_PATH).partition("?")[0])
    except errors.AppError:
        return None


def count_attempt(request: HttpRequest, email: str) -> bool:
    """Count an attempt; return False if the client address is over a limit.

    One limit applies to each email, the other to all emails together.

    Raises `Unavailable` without Redis, so that password guessing stays limited.
    """
    address = network(request.META["REMOTE_ADDR"])
    try:
        by_email = count_custom(
            "sign-in.person", f"{address} {email.strip().lower()}", MAX_PER_EMAIL
        )
        by_address = count_custom("sign-in.address", address, MAX_PER_ADDRESS)
    except RedisError:
        raise errors.Unavailable from None
    return not (by_email.is_over or by_address.is_over)
