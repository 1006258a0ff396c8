"""Forms of the dataset pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django import forms

from apps.core import errors as core_errors
from apps.core.json import loads
from apps.datasets.models import NAME_LENGTH, TAG_LENGTH, Dataset, DataType
from apps.datasets.pages.json_text import indent_json
from apps.datasets.services.content import check_schema
from apps.datasets.wire import MAX_SPLIT_LENGTH, storable_json

MAX_SCHEMA_LENGTH = 200_000


class DatasetForm(forms.Form):
    """The fields of every dataset."""

    name = forms.CharField(max_length=NAME_LENGTH)
    description = forms.CharField(
        required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 2})
    )

    def clean_description(self) -> str | None:
        return self.cleaned_data["description"] or None


class NewDatasetForm(DatasetForm):
    data_type = forms.ChoiceField(
        choices=DataType.choices,
        label="Type",
        initial=DataType.KEY_VALUE,
        help_text="Key-value fits every program; LLM and Chat are formats of older clients.",
    )


class SchemaField(forms.CharField):
    """A JSON Schema as text; empty is None."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            required=False,
            strip=False,
            max_length=MAX_SCHEMA_LENGTH,
            widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
            **options,
        )

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        if not text.strip():
            return None
        try:
            schema = loads(text)
        except ValueError as error:
            raise forms.ValidationError(f"This is not valid JSON: {error}") from None
        if not isinstance(schema, dict):
            raise forms.ValidationError("A schema is a JSON object.")
        try:
            check_schema(schema, str(self.label or "schema"))
            return storable_json(schema)
        except core_errors.AppError as error:
            raise forms.ValidationError(error.detail) from None


class DatasetSettingsForm(DatasetForm):
    inputs_schema = SchemaField(
        label="Schema of the inputs", help_text="JSON Schema that new and changed examples fit."
    )
    outputs_schema = SchemaField(
        label="Schema of the outputs", help_text="Examples without outputs are not checked."
    )

    @classmethod
    def for_dataset(cls, dataset: Dataset, data: Mapping[str, Any] | None) -> DatasetSettingsForm:
        return cls(
            data,
            initial={
                "name": dataset.name,
                "description": dataset.description or "",
                "inputs_schema": indent_json(dataset.inputs_schema),
                "outputs_schema": indent_json(dataset.outputs_schema),
            },
        )


class VersionTagForm(forms.Form):
    tag = forms.CharField(max_length=TAG_LENGTH, label="Tag")
    as_of = forms.CharField(max_length=40, label="Version")


class AddRunsForm(forms.Form):
    """The dataset that runs are added to: one of the workspace, or a new one."""

    dataset = forms.CharField(required=False, max_length=40)
    name = forms.CharField(required=False, max_length=NAME_LENGTH, label="Name of the new dataset")
    split = forms.CharField(required=False, max_length=MAX_SPLIT_LENGTH, label="Split")
    with_outputs = forms.BooleanField(
        required=False,
        initial=True,
        label="Use their outputs as reference outputs",
        help_text="Without them, write the expected outputs afterwards.",
    )

    def clean_dataset(self) -> UUID | None:
        text = self.cleaned_data["dataset"]
        if text in {"", "new"}:
            return None
        try:
            return UUID(text)
        except ValueError:
            raise forms.ValidationError("Choose a dataset.") from None

    def clean(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().clean() or {}
        if "dataset" in fields and fields["dataset"] is None and not fields.get("name"):
            raise forms.ValidationError("Choose a dataset, or name a new one.")
        return fields
