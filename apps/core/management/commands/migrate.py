"""Django's `migrate`, in a fraction of its time."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate

from apps.core.migration_rendering import render_changed_models_only


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        with render_changed_models_only():
            super().handle(*args, **options)
