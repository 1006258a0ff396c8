"""An operator acts as another person: by a session of their own that says so, and for an hour.

Who is shown in every page, who is written down with every deed, and it ends by one click. The
person's password, second factor and sessions stay out of it.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.db import transaction
from django.http import HttpRequest

from apps.audit.actions import Action
from apps.audit.services import IMPERSONATOR, Target, record
from apps.core import errors, feature_switches
from apps.organizations.models import Membership, User

MAX_SECONDS = 3600
_KEPT = (SESSION_KEY, BACKEND_SESSION_KEY, HASH_SESSION_KEY)


def start(request: HttpRequest, person: User) -> None:
    """Be the person from now on in this session; refuses another operator and inactive people."""
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
        raise errors.Forbidden("Nobody acts as an operator, or as somebody who is gone.")
    with transaction.atomic():
        _record(Action.IMPERSONATION_STARTED, person)
    session = request.session
    said = {
        "id": str(operator.pk),
        "email": operator.email,
        "until": time.time() + MAX_SECONDS,
        "own": {name: session[name] for name in _KEPT if name in session},
    }
    session.cycle_key()
    # Also where no middleware looks, such as at a socket.
    session.set_expiry(MAX_SECONDS)
    session[IMPERSONATOR] = said
    session[SESSION_KEY] = str(person.pk)
    session[HASH_SESSION_KEY] = person.get_session_auth_hash()


def end(request: HttpRequest) -> User | None:
    """Be oneself again, and return whom one was; None when nobody was impersonated."""
    said = current_impersonator(request)
    if said is None:
        return None
    person = User.objects.filter(pk=str(request.session.get(SESSION_KEY))).first()
    if person is not None:
        with transaction.atomic():
            _record(Action.IMPERSONATION_ENDED, person)
    session = request.session
    for name in _KEPT:
        session.pop(name, None)
    session.update(said["own"])
    del session[IMPERSONATOR]
    session.set_expiry(None)
    session.cycle_key()
    return person


def current_impersonator(request: HttpRequest) -> dict[str, Any] | None:
    """The operator behind this session, if there is one."""
    session = getattr(request, "session", None)
    said: dict[str, Any] | None = session.get(IMPERSONATOR) if session is not None else None
    return said


def has_expired(said: dict[str, Any]) -> bool:
    """Whether its hour is over, or the operator is none any more."""
    if time.time() > float(said["until"]) or not feature_switches.is_enabled("impersonation"):
        return True
    operators = User.objects.filter(pk=UUID(said["id"]), is_superuser=True, is_active=True)
    return not operators.exists()


def _record(action: Action, person: User) -> None:
    """In the log of each organization that the person belongs to: they may know of it."""
    memberships = Membership.objects.filter(user=person)
    organizations: list[UUID | None] = list(memberships.values_list("organization_id", flat=True))
    for organization_id in organizations or [None]:
        record(action, Target("user", person.pk, person.email), organization_id=organization_id)
