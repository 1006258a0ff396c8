"""What pages about accounts show beside their forms."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from apps.accounts.invited import invitation_of


def entrance(request: HttpRequest) -> dict[str, Any]:
    """Which doors there are."""
    return {
        "can_mail": bool(settings.EMAIL_HOST),
        "providers": settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"],
        "may_sign_up": settings.SIGN_UP or invitation_of(request) is not None,
        "invitation": invitation_of(request),
    }
