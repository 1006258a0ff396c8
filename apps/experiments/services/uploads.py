"""Stores experiments that were run elsewhere, with their datasets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

import msgspec
from django.db import transaction

from apps.core import errors as core_errors
from apps.core.ids import uuid7
from apps.core.json import Fragment, dumps
from apps.datasets.models import NAME_LENGTH, Dataset, ExampleRevision
from apps.datasets.services.datasets import create_dataset
from apps.datasets.services.examples import (
    ExampleChange,
    NewExample,
    create_examples,
    update_examples,
)
from apps.datasets.services.versions import lock_dataset
from apps.datasets.wire import (
    WireExample,
    WireExampleUpdate,
    clean_name,
    parse_object,
    parse_time_field,
    storable_json,
)
from apps.experiments import errors
from apps.experiments.wire import WireResult, WireScore, WireUpload
from apps.feedback.services import attach_to_runs
from apps.feedback.services.feedback import store_feedback
from apps.feedback.wire import WireFeedback, decode_feedback
from apps.ingest.decoders import decode_batch
from apps.ingest.services.ingest_runs import ingest
from apps.trace_store.dotted_order import format_segment
from apps.tracing.models import Project
from apps.tracing.services import create_project

MAX_RESULTS = 20_000


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the upload, with its times and the ids of its example and run."""

    wire: WireResult
    example_id: UUID
    run_id: UUID
    start_time: datetime
    end_time: datetime


@transaction.atomic
def upload_experiment(
    *, workspace_id: UUID, upload: WireUpload, user_id: UUID | None
) -> tuple[Dataset, Project]:
    """Store the experiment with its examples, runs and scores: all or nothing.

    The dataset is created, unless an upload created it before: then rows with a known `row_id`
    belong to the existing example, which changes if the row differs.

    Raises `DatasetNotExternal`, `ProjectNameTaken` for a known name of the experiment, and
    `Invalid` for rows outside the time of the experiment.
    """
    start_time = _parse_time(upload.experiment_start_time, "experiment_start_time")
    end_time = _parse_time(upload.experiment_end_time, "experiment_end_time")
    if end_time < start_time:
        raise core_errors.Invalid("`experiment_end_time` precedes `experiment_start_time`.")
    if len(upload.results) > MAX_RESULTS:
        raise core_errors.Invalid(f"`results` may have at most {MAX_RESULTS} rows.")
    name = clean_name(upload.experiment_name, NAME_LENGTH)
    dataset = _find_or_create_dataset(workspace_id, upload)
    rows = list(_parse_rows(dataset, upload, start_time, end_time))
    version_at = _write_examples(dataset, rows)
    metadata = dict(upload.experiment_metadata or {})
    metadata["dataset_version"] = version_at.isoformat()
    project = create_project(
        workspace_id=workspace_id,
        name=name,
        description=upload.experiment_description,
        start_time=start_time,
        end_time=end_time,
        reference_dataset_id=dataset.pk,
        extra={"metadata": storable_json(metadata)},
    )
    _write_runs(project, rows)
    _write_scores(project, rows, upload.summary_experiment_scores or (), user_id)
    dataset.refresh_from_db()
    return dataset, project


def _parse_time(text: str, field: str) -> datetime:
    time = parse_time_field(text, field)
    if time is None:
        raise core_errors.Invalid(f"`{field}` is required.")
    return time


def _find_or_create_dataset(workspace_id: UUID, upload: WireUpload) -> Dataset:
    """Return the dataset, locked until the end of the transaction."""
    if upload.dataset_id is None and not upload.dataset_name:
        raise core_errors.Invalid("Set `dataset_id` or `dataset_name`.")
    rows = Dataset.objects.for_workspace(workspace_id).present()
    if upload.dataset_id is not None:
        dataset = rows.filter(pk=upload.dataset_id).first()
    else:
        dataset = rows.filter(name=clean_name(upload.dataset_name or "", NAME_LENGTH)).first()
    if dataset is not None:
        if not dataset.externally_managed:
            raise errors.DatasetNotExternal
        return lock_dataset(workspace_id, dataset.pk)
    fields: dict[str, Any] = {} if upload.dataset_id is None else {"id": upload.dataset_id}
    name = upload.dataset_name or f"uploaded-{upload.dataset_id}"
    dataset = create_dataset(
        workspace_id=workspace_id,
        name=clean_name(name, NAME_LENGTH),
        description=upload.dataset_description,
        externally_managed=True,
        **fields,
    )
    return lock_dataset(workspace_id, dataset.pk)


def _parse_rows(
    dataset: Dataset, upload: WireUpload, earliest: datetime, latest: datetime
) -> Iterator[_Row]:
    for number, wire in enumerate(upload.results):
        start_time = _parse_time(wire.start_time, f"results[{number}].start_time")
        end_time = _parse_time(wire.end_time, f"results[{number}].end_time")
        if not earliest <= start_time <= end_time <= latest:
            raise core_errors.Invalid(
                f"`results[{number}]`: the run is not within the time of the experiment."
            )
        # The same row of two uploads is one example, also if other datasets have the row.
        yield _Row(wire, uuid5(dataset.pk, str(wire.row_id)), uuid7(), start_time, end_time)


def _write_examples(dataset: Dataset, rows: Sequence[_Row]) -> datetime:
    """Create the new examples and change those whose row differs; return the dataset's version."""
    wires: dict[UUID, WireResult] = {}
    for number, row in enumerate(rows):
        first = wires.setdefault(row.example_id, row.wire)
        if _content(first) != _content(row.wire):
            raise core_errors.Invalid(
                f"`results[{number}]` differs from an earlier row with the same `row_id`."
            )
    revisions = ExampleRevision.objects.for_workspace(dataset.workspace_id).current()
    known = {
        revision.example_id: (revision.inputs, revision.outputs)
        for revision in revisions.filter(dataset=dataset, example_id__in=wires)
    }
    new, changes = [], []
    for example_id, wire in wires.items():
        if example_id not in known:
            example = WireExample(id=example_id, inputs=wire.inputs, outputs=wire.expected_outputs)
            new.append(NewExample(example))
        elif _content(wire) != known[example_id]:
            change = WireExampleUpdate(
                id=example_id, inputs=wire.inputs, outputs=wire.expected_outputs
            )
            changes.append(ExampleChange(change))
    version_at = dataset.latest_version_at
    if new:
        version_at = create_examples(dataset=dataset, examples=new).as_of
    if changes:
        version_at = update_examples(dataset=dataset, changes=changes).as_of
    return version_at


def _content(wire: WireResult) -> tuple[Any, Any]:
    return (
        parse_object(wire.inputs, "inputs"),
        parse_object(wire.expected_outputs, "expected_outputs"),
    )


def _write_runs(project: Project, rows: Sequence[_Row]) -> None:
    """Store the runs; raises `RunsRejected` or `Invalid` if one is not accepted."""
    if not rows:
        return
    runs = [
        {
            "id": row.run_id,
            "trace_id": row.run_id,
            "dotted_order": format_segment(row.start_time, row.run_id),
            "session_id": project.pk,
            "name": row.wire.run_name or project.name,
            "run_type": "chain",
            "start_time": row.start_time,
            "end_time": row.end_time,
            "inputs": _fragment(row.wire.inputs),
            "outputs": _fragment(row.wire.actual_outputs),
            "error": row.wire.error,
            "extra": {"metadata": row.wire.run_metadata or {}},
            "reference_example_id": row.example_id,
        }
        for row in rows
    ]
    body = dumps({"post": runs})
    request = decode_batch(body)
    request.size = len(body)
    result = ingest(project.workspace_id, request)
    if result.rejected:
        raise core_errors.Invalid(
            f"A run is refused: {result.rejected[0]}",
            [error.as_json() for error in result.rejected],
        )


def _fragment(raw: msgspec.Raw) -> Fragment:
    return Fragment(bytes(raw) or b"null")


def _write_scores(
    project: Project, rows: Sequence[_Row], summary: Sequence[WireScore], user_id: UUID | None
) -> None:
    feedback = [
        _decode_score(
            score,
            session_id=project.pk,
            run_id=row.run_id,
            trace_id=row.run_id,
            start_time=row.start_time,
        )
        for row in rows
        for score in row.wire.evaluation_scores or ()
    ]
    feedback += (_decode_score(score, session_id=project.pk) for score in summary)
    rejected = store_feedback(project.workspace_id, feedback, user_id=user_id)
    if rejected:
        raise rejected[0].error
    attach_to_runs.attach(
        project.workspace_id, {item.run_id for item in feedback if item.run_id is not None}
    )


def _decode_score(score: WireScore, **target: Any) -> WireFeedback:
    """Return the feedback; raises `InvalidFeedback`."""
    fields = msgspec.structs.asdict(score) | target
    return decode_feedback(dumps({n: v for n, v in fields.items() if v is not None}))
