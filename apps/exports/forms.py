"""The forms of the export pages."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django import forms

from apps.core.errors import AppError
from apps.exports.models import BulkExport, Compression, Destination, Kind
from apps.exports.services import MOST_DAYS
from apps.trace_store import filters
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
    filter = forms.CharField(
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

    def clean_filter(self) -> str:
        text: str = self.cleaned_data["filter"]
        try:
            if text:
                filters.parse(text)
        except AppError as error:
            raise forms.ValidationError(error.detail) from None
        return text

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        begin, end, interval = given.get("begin"), given.get("end"), given.get("interval")
        if begin and (end is None) == (interval is None):
            self.add_error("end", "Enter either an end date or a repeat interval.")
        elif begin and end and not timedelta() <= end - begin < timedelta(days=MOST_DAYS):
            self.add_error("end", "The end date must not be before the start date.")
        return given

    def export(self) -> BulkExport:
        """What was asked for, not yet kept."""
        given = self.cleaned_data
        end = given["end"]
        return BulkExport(
            workspace_id=self.workspace_id,
            project=given["project"],
            destination=given["destination"],
            start_time=_midnight(given["begin"]),
            end_time=None if end is None else _midnight(end + timedelta(days=1)),
            interval_hours=given["interval"],
            filter=given["filter"],
            compression=given["compression"],
        )


def _midnight(day: Any) -> datetime:
    return datetime.combine(day, time(), UTC)


class DestinationForm(forms.Form):
    name = forms.CharField(max_length=200, label="Name")
    kind = forms.ChoiceField(
        label="Type",
        choices=[(Kind.S3, "S3 bucket"), (Kind.PLATFORM, "This platform, for download")],
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
        given: dict[str, Any] = super().clean() or {}
        if given.get("kind") == Kind.S3:
            for name in ("bucket_name", "access_key_id", "secret_access_key"):
                if not given.get(name) and name not in self.errors:
                    self.add_error(name, "This field is required for an S3 bucket.")
        return given

    def destination(self, workspace_id: UUID) -> Destination:
        """What was asked for, not yet kept, without its credentials."""
        given = self.cleaned_data
        config = {"prefix": given["key_prefix"]}
        if given["kind"] == Kind.S3:
            config |= {name: given[name] for name in ("bucket_name", "region", "endpoint_url")}
        config = {name: value for name, value in config.items() if value}
        return Destination(
            workspace_id=workspace_id, name=given["name"], kind=given["kind"], config=config
        )

    def credentials(self) -> dict[str, str] | None:
        given = self.cleaned_data
        if given["kind"] == Kind.PLATFORM:
            return None
        return {name: given[name] for name in ("access_key_id", "secret_access_key")}


class ChangeDestinationForm(forms.Form):
    """Its name, and for a bucket other keys: where it is stays, for exports are there already."""

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
        if destination.kind != Kind.S3:
            del self.fields["access_key_id"], self.fields["secret_access_key"]

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or {}
        if bool(given.get("access_key_id")) != bool(given.get("secret_access_key")):
            self.add_error(
                "secret_access_key",
                "Enter both keys, or leave both empty to keep the current keys.",
            )
        return given

    def credentials(self) -> dict[str, str] | None:
        """Other keys; None keeps those that are there."""
        given = self.cleaned_data
        if not given.get("access_key_id"):
            return None
        return {name: given[name] for name in ("access_key_id", "secret_access_key")}
