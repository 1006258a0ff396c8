"""The invitation of an anonymous user, from the page that they return to after sign-up."""

from __future__ import annotations

from allauth.account.utils import get_next_redirect_url
from django.http import HttpRequest

from apps.core import errors
from apps.organizations.models import Invitation
from apps.organizations.services.invitations import get_by_token

_INVITATION_PATH = "/invitations/"


def get_pending_invitation(request: HttpRequest) -> Invitation | None:
    """Return the open invitation in the redirect target, if any."""
    next_path = get_next_redirect_url(request) or ""
    if not next_path.startswith(_INVITATION_PATH):
        return None
    try:
        return get_by_token(next_path.removeprefix(_INVITATION_PATH).partition("?")[0])
    except errors.AppError:
        return None
