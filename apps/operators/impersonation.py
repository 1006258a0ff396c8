"""Impersonation: an operator acts as a user in the operator's own session, for one hour.

Every page shows the operator and a button that ends the impersonation. Every audit entry records
both users. The user's password, second factor and sessions are not involved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from apps.audit.actions import Action
from apps.audit.services import IMPERSONATOR_SESSION_KEY, Target, record
from apps.core import errors, feature_switches
from apps.core.http.middleware import error_response
from apps.organizations.models import Membership, User

MAX_SECONDS = 3600
_SESSION_KEYS = (SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY)


def start(request: HttpRequest, person: User) -> None:
    """Start impersonating the user. Raises `Forbidden` for operators and inactive users."""
    operator = request.user
    if (
        not isinstance(operator, User)
        or not operator.is_superuser
        or current_impersonator(request) is not None
    ):
        raise errors.Forbidden
    if not feature_switches.is_enabled("impersonation"):
        raise errors.Forbidden("Impersonation is switched off.")
    if person.is_staff or person.is_superuser or not person.is_active:
        raise errors.Forbidden("Operators and inactive users cannot be impersonated.")
    with transaction.atomic():
        _record(Action.IMPERSONATION_STARTED, person)
    session = request.session
    impersonator = {
        "id": str(operator.pk),
        "email": operator.email,
        "until": time.time() + MAX_SECONDS,
        "own": {name: session[name] for name in _SESSION_KEYS if name in session},
    }
    session.cycle_key()
    # The expiry also limits WebSockets, for which the middleware does not run.
    session.set_expiry(MAX_SECONDS)
    session[IMPERSONATOR_SESSION_KEY] = impersonator
    session[SESSION_KEY] = str(person.pk)
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()


def end(request: HttpRequest) -> User | None:
    """End impersonation and return the user; None if there was none."""
    impersonator = current_impersonator(request)
    if impersonator is None:
        return None
    person = User.objects.filter(pk=str(request.session.get(SESSION_KEY))).first()
    if person is not None:
        with transaction.atomic():
            _record(Action.IMPERSONATION_ENDED, person)
    session = request.session
    for name in _SESSION_KEYS:
        session.pop(name, None)
    session.update(impersonator["own"])
    del session[IMPERSONATOR_SESSION_KEY]
    session.set_expiry(None)
    session.cycle_key()
    return person


def current_impersonator(request: HttpRequest) -> dict[str, Any] | None:
    """Return the impersonating operator of this session, if any."""
    session = getattr(request, "session", None)
    impersonator: dict[str, Any] | None = (
        session.get(IMPERSONATOR_SESSION_KEY) if session is not None else None
    )
    return impersonator


def has_expired(impersonator: dict[str, Any]) -> bool:
    """Return whether the time limit is over or the operator lost their rights."""
    if time.time() > float(impersonator["until"]) or not feature_switches.is_enabled(
        "impersonation"
    ):
        return True
    operators = User.objects.filter(pk=UUID(impersonator["id"]), is_superuser=True, is_active=True)
    return not operators.exists()


def _record(action: Action, person: User) -> None:
    """Record the action in the audit log of each of the user's organizations."""
    memberships = Membership.objects.filter(user=person)
    organizations: list[UUID | None] = list(memberships.values_list("organization_id", flat=True))
    for organization_id in organizations or [None]:
        record(action, Target("user", person.pk, person.email), organization_id=organization_id)


Handler = Callable[[HttpRequest], HttpResponse]
# An impersonator must not take over the account: address, password, second factor.
_EXCLUDED_PATHS = ("/account/", "/admin/")
_END_PATH = "/end-impersonation"


class ImpersonationMiddleware:
    """Runs after authentication; other sessions cost one lookup in the session."""

    def __init__(self, get_response: Handler) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Requests without a session cookie cannot be impersonated.
        if not _has_cookie(request):
            return self.get_response(request)
        impersonator = current_impersonator(request)
        if impersonator is None or request.path_info == _END_PATH:
            return self.get_response(request)
        if has_expired(impersonator):
            end(request)
            return redirect("admin:index")
        return self.get_response(request)

    def process_view(
        self, request: HttpRequest, view: object, args: object, kwargs: object
    ) -> HttpResponse | None:
        if not _has_cookie(request) or current_impersonator(request) is None:
            return None
        if not f"{request.path_info}/".startswith(_EXCLUDED_PATHS):
            return None
        return error_response(
            request,
            errors.Forbidden("Not allowed while impersonating."),
        )


def _has_cookie(request: HttpRequest) -> bool:
    return settings.SESSION_COOKIE_NAME in request.COOKIES
