"""Forms of the export pages."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django import forms

from apps.exports.models import BulkExport, Compression, Destination, DestinationKind
from apps.exports.services import MAX_DAYS
from apps.tracing.forms import RunFilterField
from apps.tracing.models import Project

_PASSWORD = forms.PasswordInput(attrs={"autocomplete": "off"})


class ExportForm(forms.Form):
    project = forms.ModelChoiceField(
        queryset=Project.unscoped.none(), label="Project", empty_label="Select a project"
    )
    destination = forms.ModelChoiceField(
        queryset=Destination.unscoped.none(),
        label="Destination",
        empty_label="Select a destination",
    )
    begin = forms.DateField(label="From", widget=forms.DateInput(attrs={"type": "date"}))
    end = forms.DateField(
        label="To (inclusive)",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="Leave empty for a repeating export.",
    )
    interval = forms.TypedChoiceField(
        label="Repeat",
        coerce=int,
        empty_value=None,
        required=False,
        choices=[("", "Once"), (1, "Every hour"), (24, "Every day"), (168, "Every week")],
    )
    filter = RunFilterField(
        label="Filter",
        required=False,
        max_length=10_000,
        help_text="A filter expression. Leave empty to export all runs.",
    )
    compression = forms.ChoiceField(
        label="Compression", choices=Compression.choices, initial=Compression.ZSTANDARD
    )

    def __init__(self, workspace_id: UUID, data: Any = None, *, project: str = "") -> None:
        yesterday = datetime.now(UTC).date() - timedelta(days=1)
        initial = {"project": project, "begin": yesterday - timedelta(days=6), "end": yesterday}
        super().__init__(data, initial=initial)
        projects = Project.objects.for_workspace(workspace_id).present().newest_first()
        self.fields["project"].queryset = projects  # type: ignore[attr-defined]
        destinations = Destination.objects.for_workspace(workspace_id).order_by("name")
        self.fields["destination"].queryset = destinations  # type: ignore[attr-defined]
        self.initial["destination"] = destinations.values_list("pk", flat=True).first()
        self.workspace_id = workspace_id

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        begin, end, interval = cleaned.get("begin"), cleaned.get("end"), cleaned.get("interval")
        if begin and (end is None) == (interval is None):
            self.add_error("end", "Enter either an end date or a repeat interval.")
        elif begin and end and not timedelta() <= end - begin < timedelta(days=MAX_DAYS):
            self.add_error(
                "end",
                "The end date must not be before the start date, and an export may cover at most"
                f" {MAX_DAYS} days.",
            )
        return cleaned

    def to_export(self) -> BulkExport:
        """Return the unsaved export."""
        cleaned = self.cleaned_data
        end = cleaned["end"]
        return BulkExport(
            workspace_id=self.workspace_id,
            project=cleaned["project"],
            destination=cleaned["destination"],
            start_time=_to_midnight(cleaned["begin"]),
            end_time=None if end is None else _to_midnight(end + timedelta(days=1)),
            interval_hours=cleaned["interval"],
            filter=cleaned["filter"],
            compression=cleaned["compression"],
        )


def _to_midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


class DestinationForm(forms.Form):
    name = forms.CharField(max_length=200, label="Name")
    kind = forms.ChoiceField(
        label="Type",
        choices=[
            (DestinationKind.S3, "S3 bucket"),
            (DestinationKind.PLATFORM, "This platform, for download"),
        ],
    )
    bucket_name = forms.RegexField(
        r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", label="Bucket", required=False
    )
    key_prefix = forms.RegexField(
        r"^(?!.*(^|/)\.\.(/|$))[^\x00-\x1f\x7f]*$", label="Prefix", max_length=500, required=False
    )
    region = forms.CharField(max_length=50, label="Region", required=False)
    endpoint_url = forms.URLField(
        label="Endpoint URL",
        required=False,
        assume_scheme="https",
        help_text="Only for S3-compatible servers other than Amazon S3.",
    )
    access_key_id = forms.CharField(max_length=500, label="Access key", required=False)
    secret_access_key = forms.CharField(
        max_length=1000, label="Secret key", required=False, strip=False, widget=_PASSWORD
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("kind") == DestinationKind.S3:
            for name in ("bucket_name", "access_key_id", "secret_access_key"):
                if not cleaned.get(name) and name not in self.errors:
                    self.add_error(name, "This field is required for an S3 bucket.")
        return cleaned

    def to_destination(self, workspace_id: UUID) -> Destination:
        """Return the unsaved destination without credentials."""
        cleaned = self.cleaned_data
        config = {"prefix": cleaned["key_prefix"]}
        if cleaned["kind"] == DestinationKind.S3:
            config |= {name: cleaned[name] for name in ("bucket_name", "region", "endpoint_url")}
        config = {name: value for name, value in config.items() if value}
        return Destination(
            workspace_id=workspace_id, name=cleaned["name"], kind=cleaned["kind"], config=config
        )

    def credentials(self) -> dict[str, str] | None:
        cleaned = self.cleaned_data
        if cleaned["kind"] == DestinationKind.PLATFORM:
            return None
        return {name: cleaned[name] for name in ("access_key_id", "secret_access_key")}


class ChangeDestinationForm(forms.Form):
    """Changes the name and, for a bucket, the keys. The location of existing exports is fixed."""

    name = forms.CharField(max_length=200, label="Name")
    access_key_id = forms.CharField(
        max_length=500,
        label="Access key",
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text="Leave empty to keep the current keys.",
    )
    secret_access_key = forms.CharField(
        max_length=1000, label="Secret key", required=False, strip=False, widget=_PASSWORD
    )

    def __init__(self, destination: Destination, data: Any = None) -> None:
        super().__init__(data, initial={"name": destination.name})
        if destination.kind != DestinationKind.S3:
            del self.fields["access_key_id"], self.fields["secret_access_key"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if bool(cleaned.get("access_key_id")) != bool(cleaned.get("secret_access_key")):
            self.add_error(
                "secret_access_key",
                "Enter both keys, or leave both empty to keep the current keys.",
            )
        return cleaned

    def credentials(self) -> dict[str, str] | None:
        """Return new keys, or None to keep the current ones."""
        cleaned = self.cleaned_data
        if not cleaned.get("access_key_id"):
            return None
        return {name: cleaned[name] for name in ("access_key_id", "secret_access_key")}
