"""The editor of one example: JSON, splits and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from django import forms

from apps.core import errors as core_errors
from apps.core.json import dumps
from apps.datasets.pages.example_view import ExampleView
from apps.datasets.services.attachments import ExampleFile
from apps.datasets.services.examples import ExampleChange, NewExample
from apps.datasets.wire import (
    ABSENT,
    AttachmentsOperations,
    WireExample,
    WireExampleUpdate,
    parse_object,
    parse_splits,
)

MAX_JSON_LENGTH = 5_000_000
MAX_FILE_BYTES = 20_000_000


class JsonObjectField(forms.CharField):
    """A JSON object as text; the value is compact JSON, None for an empty text."""

    def __init__(self, rows: int, **options: Any) -> None:
        super().__init__(
            strip=False,
            max_length=MAX_JSON_LENGTH,
            widget=forms.Textarea(attrs={"rows": rows, "spellcheck": "false"}),
            **options,
        )

    def clean(self, value: Any) -> msgspec.Raw | None:
        text = super().clean(value)
        if not text.strip():
            return None
        raw = msgspec.Raw(text.encode())
        try:
            parsed = parse_object(raw, str(self.label or "value"))
        except core_errors.Invalid as error:
            raise forms.ValidationError(error.detail) from None
        if parsed is None:
            raise forms.ValidationError("Write a JSON object, such as {}.")
        return msgspec.Raw(dumps(parsed))


class _FilesInput(forms.FileInput):
    allow_multiple_selected = True

    def value_from_datadict(self, data: Any, files: Any, name: str) -> Any:
        return files.getlist(name) if hasattr(files, "getlist") else []


class FilesField(forms.FileField):
    """Several uploaded files."""

    def __init__(self, **options: Any) -> None:
        widget = _FilesInput(attrs={"multiple": True})
        super().__init__(required=False, widget=widget, allow_empty_file=True, **options)

    def clean(self, data: Any, initial: Any = None) -> list[ExampleFile]:
        files = [super(FilesField, self).clean(file, initial) for file in data or []]
        if any(file.size > MAX_FILE_BYTES for file in files):
            raise forms.ValidationError(f"A file has at most {MAX_FILE_BYTES // 1_000_000} MB.")
        try:
            return [
                ExampleFile(file.name, file.content_type or "application/octet-stream", file.read())
                for file in files
            ]
        except core_errors.Invalid as error:
            raise forms.ValidationError(error.detail) from None


class ExampleForm(forms.Form):
    """The content of an example. Violations of the schemas are errors of their field."""

    inputs = JsonObjectField(
        rows=8, label="Inputs", error_messages={"required": "Write the inputs as a JSON object."}
    )
    outputs = JsonObjectField(
        rows=8, label="Outputs", required=False, help_text="What the agent should return."
    )
    metadata = JsonObjectField(rows=4, label="Metadata", required=False)
    splits = forms.CharField(
        required=False, max_length=10_000, label="Splits", help_text="Separated by commas."
    )
    # Django moves declared fields out of the class, so that this hides no uploaded files.
    files = FilesField(label="Add files")  # type: ignore[assignment]
    kept_files = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="Files"
    )
    modified_at = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)

    def __init__(self, *args: Any, file_names: list[str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.file_names = file_names or []
        self.has_outputs = False
        kept: Any = self.fields["kept_files"]
        kept.choices = [(name, name) for name in self.file_names]

    @classmethod
    def for_example(
        cls, example: ExampleView, data: Mapping[str, Any] | None, files: Any
    ) -> ExampleForm:
        names = [entry["name"] for entry in example.files]
        form = cls(
            data,
            files,
            file_names=names,
            initial={
                "inputs": example.editable_inputs,
                "outputs": example.editable_outputs,
                "metadata": example.editable_metadata,
                "splits": ", ".join(example.revision.splits),
                "kept_files": names,
                "modified_at": example.revision.valid_from.isoformat(),
            },
        )
        form.has_outputs = example.outputs.body is not None
        return form

    @property
    def json_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in ("inputs", "outputs", "metadata")]

    def clean_splits(self) -> list[str]:
        names = [name.strip() for name in self.cleaned_data["splits"].split(",")]
        try:
            return parse_splits([name for name in names if name])
        except core_errors.Invalid as error:
            raise forms.ValidationError(error.detail) from None

    def clean_outputs(self) -> msgspec.Raw | None:
        outputs: msgspec.Raw | None = self.cleaned_data["outputs"]
        if outputs is None and self.has_outputs:
            raise forms.ValidationError("An example keeps its outputs: write {} to empty them.")
        return outputs

    def new_example(self) -> NewExample:
        fields = self.cleaned_data
        wire = WireExample(
            inputs=fields["inputs"],
            outputs=fields["outputs"] or ABSENT,
            metadata=fields["metadata"] or ABSENT,
            split=fields["splits"] or None,
        )
        return NewExample(wire, fields["files"])

    def change(self, example_id: UUID) -> ExampleChange:
        fields = self.cleaned_data
        wire = WireExampleUpdate(
            id=example_id,
            inputs=fields["inputs"],
            outputs=fields["outputs"] or ABSENT,
            metadata=fields["metadata"] or msgspec.Raw(b"{}"),
            split=fields["splits"],
            attachments_operations=AttachmentsOperations(retain=fields["kept_files"]),
        )
        return ExampleChange(wire, fields["files"])

    def add_problems(self, error: core_errors.AppError) -> None:
        """Add the violations of the schemas to their fields, other errors to the form."""
        problems = [item for item in error.errors if {"field", "message"} <= item.keys()]
        for problem in problems:
            name = str(problem["field"]).replace("[", ".").partition(".")[0]
            path = str(problem["field"]).removeprefix(name).removeprefix(".")
            text = f"`{path}`: {problem['message']}" if path else str(problem["message"])
            self.add_error(name if name in self.fields else None, text)
        if not problems:
            self.add_error(None, error.detail)
