"""Adds runs to a dataset as examples that are linked to them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from apps.datasets.models import Dataset
from apps.datasets.services.examples import NewExample, WrittenExamples, create_examples
from apps.datasets.services.source_runs import fetch_source_runs
from apps.datasets.wire import WireExample


def add_runs(
    *,
    dataset: Dataset,
    run_ids: Sequence[UUID],
    splits: Sequence[str] = (),
    with_outputs: bool = True,
) -> WrittenExamples:
    """Create an example from each run, with its inputs and files, in one version: all or none.

    `with_outputs` takes the outputs of the runs as reference outputs. Raises `SourceRunNotFound`,
    and `ExampleRefused` for a run that does not fit the dataset.
    """
    split = list(splits) or None
    wires = [
        WireExample(source_run_id=run_id, use_source_run_io=True, split=split) for run_id in run_ids
    ]
    if not with_outputs:
        runs = fetch_source_runs(dataset.workspace_id, wires)
        wires = [
            WireExample(
                source_run_id=run_id,
                inputs=runs[run_id].inputs,
                use_source_run_attachments=[
                    file.name for file in runs[run_id].attachments if not file.is_medium
                ],
                split=split,
            )
            for run_id in run_ids
        ]
    return create_examples(dataset=dataset, examples=[NewExample(wire) for wire in wires])
