"""Renders datasets and examples as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from apps.core.json import loads_exact
from apps.datasets.models import Dataset, DatasetVersion, ExampleRevision
from apps.datasets.services.datasets import ExperimentCounts, count_experiments
from apps.datasets.services.embedded_content import embedded_content
from apps.datasets.services.versions import RevisionContent
from apps.datasets.wire import WireExample
from apps.tracing.api.downloads import signed_file_url

EXAMPLE_FIELDS = (
    "id", "created_at", "modified_at", "name", "dataset_id", "source_run_id", "source_session_id",
    "source_run_start_time", "source_trace_id", "metadata", "inputs", "outputs", "attachment_urls",
)  # fmt: skip
DEFAULT_FIELDS = ("id", "created_at", "modified_at", "name", "dataset_id", "inputs")
"""Fields that a response has next to the selected ones."""
_UNSELECTED_FIELDS = frozenset(EXAMPLE_FIELDS) - {"attachment_urls"}


def datasets_json(
    workspace_id: UUID, datasets: Sequence[Dataset], excluded: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the datasets with the counts of their experiments, in one query."""
    counts = count_experiments(workspace_id, [dataset.pk for dataset in datasets])
    return [
        dataset_json(dataset, counts.get(dataset.pk, ExperimentCounts()), excluded)
        for dataset in datasets
    ]


def dataset_json(
    dataset: Dataset, experiments: ExperimentCounts, excluded: Collection[str] = ()
) -> dict[str, Any]:
    return {
        "id": dataset.pk,
        "tenant_id": dataset.workspace_id,
        "name": dataset.name,
        "description": dataset.description,
        "data_type": dataset.data_type,
        "created_at": dataset.created_at,
        "modified_at": dataset.updated_at,
        "example_count": None if "example_count" in excluded else dataset.example_count,
        "session_count": experiments.count,
        "last_session_start_time": experiments.last_start_time,
        "inputs_schema_definition": dataset.inputs_schema,
        "outputs_schema_definition": dataset.outputs_schema,
        "transformations": dataset.transformations,
        "externally_managed": dataset.externally_managed,
        "metadata": dataset.metadata,
        "baseline_experiment_id": dataset.baseline_experiment_id,
    }


_PRIVATE_FIELDS = (
    "tenant_id",
    "session_count",
    "last_session_start_time",
    "baseline_experiment_id",
)


def shared_dataset_json(dataset: Dataset) -> dict[str, Any]:
    """Return the dataset as a public link shows it: without workspace and experiments."""
    fields = dataset_json(dataset, ExperimentCounts())
    return {name: value for name, value in fields.items() if name not in _PRIVATE_FIELDS}


def without_sources(example: dict[str, Any]) -> dict[str, Any]:
    """Return the example without the runs that it comes from."""
    return {name: value for name, value in example.items() if not name.startswith("source_")}


def fields_to_render(select: Collection[str], *, only_selected: bool) -> frozenset[str]:
    """Return the fields of a response; without a selection, all but `attachment_urls`.

    A selection adds to the default fields or, with `only_selected`, replaces them.
    """
    if not select:
        return _UNSELECTED_FIELDS
    return frozenset(select) | ({"id"} if only_selected else set(DEFAULT_FIELDS))


def example_json(
    revision: ExampleRevision,
    dataset_name: str,
    fields: Collection[str] = frozenset(EXAMPLE_FIELDS),
) -> dict[str, Any]:
    example = {
        "id": revision.example_id,
        "created_at": revision.created_at,
        "modified_at": revision.valid_from,
        "name": f"#{str(revision.example_id)[-4:]} @ {dataset_name}",
        "dataset_id": revision.dataset_id,
        "source_run_id": revision.source_run_id,
        "source_session_id": revision.source_session_id,
        "source_run_start_time": revision.source_run_start_time,
        "source_trace_id": revision.source_trace_id,
    }
    # These may not be loaded.
    if "metadata" in fields:
        example["metadata"] = revision.metadata
    if "inputs" in fields:
        example["inputs"] = embedded_content(revision, "inputs")
    if "outputs" in fields:
        example["outputs"] = embedded_content(revision, "outputs")
    if "attachment_urls" in fields:
        example["attachment_urls"] = attachment_urls(revision)
    return {name: value for name, value in example.items() if name in fields}


def validated_json(content: RevisionContent, wire: WireExample, dataset_id: UUID) -> dict[str, Any]:
    """Return an example that was checked and not stored; `id` is null unless it was given."""
    return {
        "id": wire.id,
        "dataset_id": dataset_id,
        "created_at": content.created_at,
        "inputs": loads_exact(content.inputs),
        "outputs": None if content.outputs is None else loads_exact(content.outputs),
        "metadata": content.metadata,
        "split": content.splits,
        "source_run_id": wire.source_run_id,
        "use_source_run_io": bool(wire.use_source_run_io),
        "overwrite": False,
    }


def attachment_urls(revision: ExampleRevision) -> dict[str, Any] | None:
    """Return a signed, absolute download URL by attachment; null without attachments."""
    if not revision.attachments:
        return None
    return {
        f"attachment.{entry['name']}": {
            "presigned_url": signed_file_url(entry["path"], entry["mime_type"], entry["name"]),
            "mime_type": entry["mime_type"],
        }
        for entry in revision.attachments
    }


def version_json(version: DatasetVersion, tags: Sequence[str]) -> dict[str, Any]:
    return {"as_of": version.as_of, "tags": list(tags)}
