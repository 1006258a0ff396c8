"""The form of an import: a file, and what becomes of each of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from django import forms

from apps.datasets import errors
from apps.datasets.models import NAME_LENGTH
from apps.datasets.services.imports import ColumnMapping, ImportedFile
from apps.datasets.wire import SPLIT_KEY

INPUT, OUTPUT, METADATA, SPLIT, IGNORED = "inputs", "outputs", "metadata", "split", ""
ROLES = (
    (INPUT, "Input"),
    (OUTPUT, "Output"),
    (METADATA, "Metadata"),
    (SPLIT, "Split"),
    (IGNORED, "Not imported"),
)
MAX_COLUMNS = 500
MAX_KEY_LENGTH = 500
_EXPORTED_KEYS = frozenset({"inputs", "outputs", "metadata", "split"})
_OUTPUT_NAMES = frozenset(
    {
        *("output", "outputs", "answer", "answers", "expected", "expected_output", "reference"),
        *("label", "target", "response", "completion", "ideal", "ground_truth"),
    }
)
_SPLIT_NAMES = frozenset({"split", "dataset_split"})
_METADATA_NAMES = frozenset({"id", "source", "tags", "category", "created_at"})


@dataclass(frozen=True)
class ColumnChoice:
    """What becomes of a column: its role, and its key in the example."""

    name: str
    role: str
    key: str


class ImportForm(forms.Form):
    """The file; the mapping of its columns is read by `read_choices`."""

    file = forms.FileField(
        label="CSV or JSON lines file",
        widget=forms.FileInput(attrs={"accept": ".csv,.jsonl,.ndjson,text/csv"}),
        error_messages={"required": "Choose a file.", "empty": "The file is empty."},
    )
    name = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        label="Name of the dataset",
        help_text="The name of the file, if this is empty.",
    )
    parses_json = forms.BooleanField(
        required=False,
        label="Read numbers, lists and objects",
        help_text=(
            'Cells that are JSON, such as `3`, `true` or `["a"]`, become values; others stay text.'
        ),
    )

    def __init__(self, *args: Any, needs_name: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not needs_name:
            del self.fields["name"]

    def imported_file(self, mapping: ColumnMapping | None = None) -> ImportedFile:
        """Return the uploaded file; without a mapping only its columns can be read."""
        upload = self.cleaned_data["file"]
        upload.seek(0)
        return ImportedFile(upload.name, upload.read(), mapping or ColumnMapping())

    @property
    def dataset_name(self) -> str:
        default = PurePath(self.cleaned_data["file"].name).stem or "dataset"
        return str(self.cleaned_data.get("name") or default)[:NAME_LENGTH]


def is_exported(file: ImportedFile, columns: Sequence[str]) -> bool:
    """Return whether each line has the keys of the JSON lines export, so that none is mapped."""
    return file.is_jsonl and "inputs" in columns and set(columns) <= _EXPORTED_KEYS


def read_choices(columns: Sequence[str], data: Mapping[str, Any]) -> list[ColumnChoice]:
    """Return the choice for each column: that of the form, or a guess by its name.

    Raises `FileRefused` for too many columns.
    """
    if len(columns) > MAX_COLUMNS:
        raise errors.FileRefused(f"A file has at most {MAX_COLUMNS} columns.")
    roles = dict(ROLES)
    sent = {
        data[f"column-{number}"]: (data.get(f"role-{number}"), data.get(f"key-{number}", ""))
        for number in range(len(columns))
        if f"column-{number}" in data
    }
    choices = []
    for column in columns:
        role, key = sent.get(column, (None, ""))
        if role is None or role not in roles:
            role, key = guess_role(column)
        key = str(key).strip()[:MAX_KEY_LENGTH] or column
        choices.append(ColumnChoice(column, role, key))
    return choices


def guess_role(column: str) -> tuple[str, str]:
    """Return a role and a key by the column's name, which may be that of the CSV export."""
    for role in (INPUT, OUTPUT, METADATA):
        prefix = f"{role}."
        if column.startswith(prefix) and len(column) > len(prefix):
            return role, column.removeprefix(prefix)
    name = column.strip().lower().replace(" ", "_")
    if name in _SPLIT_NAMES:
        return SPLIT, column
    if name in _OUTPUT_NAMES:
        return OUTPUT, column
    if name in _METADATA_NAMES:
        return METADATA, column
    return (IGNORED if name == "metadata" else INPUT), column


def build_mapping(choices: Sequence[ColumnChoice], *, parses_json: bool) -> ColumnMapping:
    """Return the mapping; raises `FileRefused` if it has no inputs or a key twice."""
    mappings: dict[str, dict[str, str]] = {INPUT: {}, OUTPUT: {}, METADATA: {}}
    for choice in choices:
        if choice.role == SPLIT:
            mappings[METADATA][choice.name] = SPLIT_KEY
        elif choice.role != IGNORED:
            mappings[choice.role][choice.name] = choice.key
    if not mappings[INPUT]:
        raise errors.FileRefused("Choose at least one column as an input.")
    for role, mapping in mappings.items():
        keys = list(mapping.values())
        repeated = next((key for key in keys if keys.count(key) > 1), None)
        if repeated == SPLIT_KEY:
            raise errors.FileRefused("Only one column can be the split.")
        if repeated is not None:
            raise errors.FileRefused(f"Two columns have the key `{repeated:.100}` in the {role}.")
    return ColumnMapping(
        mappings[INPUT], mappings[OUTPUT], mappings[METADATA], parses_json=parses_json
    )
