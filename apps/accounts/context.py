"""What pages about accounts show beside their forms."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from apps.accounts.pending_invitation import invitation_of
from apps.core import feature_switches


def sign_in_context(request: HttpRequest) -> dict[str, Any]:
    """Which doors there are."""
    return {
        "can_mail": bool(settings.EMAIL_HOST),
        "providers": settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"],
        "may_sign_up": feature_switches.is_enabled("sign_up") or invitation_of(request) is not None,
        "invitation": invitation_of(request),
    }
