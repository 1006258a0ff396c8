"""Forms of the key pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from apps.organizations.models import Workspace

SCOPES = [
    ("admin", "Full access"),
    ("write", "Read and write, except deployments"),
    ("read", "Read only"),
    ("ingest", "Ingest runs only"),
    ("deploy", "Deploy only"),
]
LIFETIMES = [
    ("", "Never"),
    ("7", "In 7 days"),
    ("30", "In 30 days"),
    ("90", "In 90 days"),
    ("365", "In a year"),
]
OVERLAPS = [
    ("0", "Immediately"),
    ("3600", "In an hour"),
    ("86400", "In a day"),
    ("604800", "In a week"),
    ("2592000", "In 30 days"),
]


class KeyForm(forms.Form):
    name = forms.CharField(
        max_length=200, label="Name", help_text="Describe where the key is used."
    )
    scope = forms.ChoiceField(choices=SCOPES, label="Scope")
    lifetime = forms.ChoiceField(choices=LIFETIMES, required=False, label="Expires")

    @property
    def expires_at(self) -> datetime | None:
        days = self.cleaned_data["lifetime"]
        return timezone.now() + timedelta(days=int(days)) if days else None


class OrganizationKeyForm(KeyForm):
    """A service key for all or some workspaces of the organization."""

    workspaces = forms.MultipleChoiceField(
        required=False,
        label="Workspaces",
        widget=forms.CheckboxSelectMultiple,
        help_text="Select none for access to all current and future workspaces.",
    )

    def __init__(self, *args: Any, workspaces: Sequence[Workspace], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [(str(workspace.pk), workspace.name) for workspace in workspaces]
        self.fields["workspaces"].choices = choices  # type: ignore[attr-defined]


class RotationForm(forms.Form):
    overlap = forms.ChoiceField(choices=OVERLAPS, label="Old key expires")

    @property
    def overlap_duration(self) -> timedelta:
        return timedelta(seconds=int(self.cleaned_data["overlap"]))
