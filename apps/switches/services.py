"""Features that an operator turns on and off while everything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.ttl_cache import TTLCache
from apps.switches.models import Switch

_CACHE_SECONDS = 0.8


@dataclass(frozen=True, slots=True)
class Feature:
    what: str
    default: Callable[[], bool]


FEATURES = {
    "sign_up": Feature(
        "Anybody may make an account and an organization. Whoever was invited always may.",
        lambda: bool(settings.SIGN_UP),
    ),
    "impersonation": Feature(
        "Operators may act as another person, who sees that in the audit log.", lambda: True
    ),
}

_known: TTLCache[None, dict[str, bool]] = TTLCache(_CACHE_SECONDS)


def is_on(name: str) -> bool:
    """Whether the feature is on; a change is felt by every process within a second."""
    said = _known.get(None, _look_up).get(name)
    return FEATURES[name].default() if said is None else said


def forget() -> None:
    """Drop what this process knows."""
    _known.clear()


def _look_up(_: None) -> dict[str, bool]:
    return dict(Switch.objects.values_list("name", "on"))


@transaction.atomic
def turn(name: str, *, on: bool) -> None:
    """Turn the feature on or off. Safe to repeat; what changes is in the audit log."""
    if name not in FEATURES:
        raise errors.NotFound
    row = Switch.objects.select_for_update().filter(name=name).first()
    before = FEATURES[name].default() if row is None else row.on
    Switch.objects.update_or_create(name=name, defaults={"on": on})
    if before != on:
        record(
            Action.SWITCH_CHANGED,
            Target("switch", name, name.replace("_", " ")),
            before={"on": before},
            after={"on": on},
        )
    transaction.on_commit(forget)
