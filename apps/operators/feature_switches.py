"""Changing feature switches, with an audit entry."""

from __future__ import annotations

from django.db import transaction
from waffle.models import Switch

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core import errors
from apps.core.feature_switches import FEATURES


@transaction.atomic
def set_switch(name: str, *, is_on: bool) -> None:
    """Switch the feature on or off. Safe to repeat; a change is recorded in the audit log."""
    if name not in FEATURES:
        raise errors.NotFound
    switch = Switch.objects.select_for_update().filter(name=name).first()
    before = FEATURES[name].default() if switch is None else switch.active
    Switch.objects.update_or_create(name=name, defaults={"active": is_on})
    if before != is_on:
        record(
            Action.SWITCH_CHANGED,
            Target("switch", name, name.replace("_", " ")),
            before={"on": before},
            after={"on": is_on},
        )
