"""The actor of an audit entry, with a label that outlives its row."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from celery import current_task
from django.contrib.auth import get_user_model

from apps.audit.models import ActorKind
from apps.core.request_context import RequestContext

_labels: dict[ActorKind, Callable[[UUID], str | None]] = {}


@dataclass(frozen=True, slots=True)
class Actor:
    kind: ActorKind
    label: str
    id: UUID | None = None


def register_label(kind: ActorKind, label: Callable[[UUID], str | None]) -> None:
    """Register how higher apps label their actors."""
    _labels[kind] = label


def actor_of(context: RequestContext | None) -> Actor:
    """Return the actor of the request; without one, the Celery task or the command's operator."""
    if context is None:
        return _background_actor()
    if context.operator:
        return Actor(ActorKind.OPERATOR, context.operator, context.user_id)
    if context.key_id is not None:
        return Actor(ActorKind.KEY, _find_label(ActorKind.KEY, context.key_id), context.key_id)
    if context.user_id is not None:
        return Actor(ActorKind.USER, _find_label(ActorKind.USER, context.user_id), context.user_id)
    user = getattr(context.request, "user", None)
    if user is not None and user.is_authenticated:
        # Users of the admin site act as operators.
        in_admin = context.request is not None and context.request.path_info.startswith("/admin/")
        kind = ActorKind.OPERATOR if in_admin else ActorKind.USER
        return Actor(kind, user.email, user.pk)
    return Actor(ActorKind.SYSTEM, "not signed in")


def _find_label(kind: ActorKind, actor_id: UUID) -> str:
    find = _labels.get(kind, _find_email if kind is ActorKind.USER else None)
    return (find and find(actor_id)) or str(actor_id)


def _find_email(user_id: UUID) -> str | None:
    users = get_user_model()._default_manager.filter(pk=user_id)  # noqa: SLF001
    return users.values_list("email", flat=True).first()


def _background_actor() -> Actor:
    if current_task:
        return Actor(ActorKind.SYSTEM, current_task.name)
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]])
    return Actor(ActorKind.OPERATOR, f"{getpass.getuser()} by {command}")
