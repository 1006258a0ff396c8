"""Errors of datasets, each with a stable code."""

from __future__ import annotations

from typing import Any

from apps.core import errors
from apps.tracing.errors import DatasetNotFound

__all__ = ["DatasetNotFound"]
MAX_PROBLEMS = 100
"""The number of problems that one refusal lists."""


class DatasetNameTaken(errors.Conflict):
    # Clients look for "already exists".
    code, detail = "dataset_name_taken", "A dataset with this name already exists."


class DatasetIdTaken(errors.Conflict):
    code, detail = "dataset_id_taken", "This dataset `id` cannot be used; choose another."


class VersionNotFound(errors.NotFound):
    code, detail = "dataset_version_not_found", "The dataset has no such version."


class ExampleNotFound(errors.NotFound):
    code, detail = "example_not_found", "No such example."


class ExampleOfAnotherDataset(errors.Conflict):
    code, detail = "example_of_another_dataset", "An example belongs to another dataset."


class ExampleIdTaken(errors.Conflict):
    code, detail = "example_id_taken", "An example with this `id` already exists."


class StaleExample(errors.Conflict):
    code = "stale_example"
    detail = (
        "The example has changed since the editor was opened. Open it again and repeat your change."
    )


class ExampleRefused(errors.Invalid):
    """An example does not fit the dataset; `errors` names the row and the field."""

    code, detail = "example_refused", "An example does not fit the dataset."


def refuse_examples(problems: list[dict[str, Any]]) -> ExampleRefused:
    """Return the error for the problems: each has `row` (from 0), `field` and `message`."""
    first = problems[0]
    more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
    return ExampleRefused(
        f"Row {first['row']}, {first['field']}: {first['message']}{more}", problems[:MAX_PROBLEMS]
    )


class FileRefused(errors.Invalid):
    """An uploaded file cannot be read as rows; `errors` names the row if there is one."""

    code, detail = "dataset_file_refused", "The file cannot be imported."


class DatasetNotIndexed(errors.Conflict):
    code, detail = "dataset_not_indexed", "The dataset has no index: create it first."


class TooLargeToIndex(errors.Invalid):
    code, detail = "dataset_too_large_to_index", "The dataset has too many examples for an index."


class SourceRunNotFound(errors.NotFound):
    code, detail = "source_run_not_found", "No such source run."


class SchemaRefused(errors.Invalid):
    code, detail = "dataset_schema_refused", "The schema is not a valid JSON Schema."


class ExperimentNotFound(errors.NotFound):
    code, detail = "experiment_not_found", "The dataset has no such experiment."
