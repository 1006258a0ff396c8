"""Whether somebody at the door is invited: the page that they want to reach is the link."""

from __future__ import annotations

from allauth.account.utils import get_next_redirect_url
from django.http import HttpRequest

from apps.core import errors
from apps.organizations.models import Invitation
from apps.organizations.services.invitations import get_by_token

PREFIX = "/invitations/"


def invitation_of(request: HttpRequest) -> Invitation | None:
    """The open invitation whose page comes after this one, if any."""
    after = get_next_redirect_url(request) or ""
    if not after.startswith(PREFIX):
        return None
    try:
        return get_by_token(after.removeprefix(PREFIX).partition("?")[0])
    except errors.AppError:
        return None
