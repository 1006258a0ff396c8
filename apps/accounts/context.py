"""Template context of the account pages."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from apps.accounts.pending_invitation import get_pending_invitation
from apps.core import feature_switches


def sign_in_context(request: HttpRequest) -> dict[str, Any]:
    """Return the available sign-in and sign-up methods."""
    return {
        "can_mail": bool(settings.EMAIL_HOST),
        "providers": settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"],
        "may_sign_up": feature_switches.is_enabled("sign_up")
        or get_pending_invitation(request) is not None,
        "invitation": get_pending_invitation(request),
    }
