"""Features that operators switch on and off at run time, stored by django-waffle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.conf import settings
from waffle.models import Switch


@dataclass(frozen=True, slots=True)
class Feature:
    """A switchable feature; `default` applies until an operator has set the switch."""

    description: str
    default: Callable[[], bool]


FEATURES = {
    "sign_up": Feature(
        "Anyone may create an account and an organization. Invited users always may.",
        lambda: bool(settings.SIGN_UP),
    ),
    "impersonation": Feature(
        "Operators may act as another user. The user sees it in the audit log.", lambda: True
    ),
}


def is_enabled(name: str) -> bool:
    """Return whether the feature is on; other processes see a change within a second."""
    switch = Switch.get(name)
    return FEATURES[name].default() if switch.pk is None else bool(switch.active)
