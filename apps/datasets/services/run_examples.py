"""Adds runs to a dataset as examples that are linked to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from apps.core.json import dumps
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
    corrections: Mapping[UUID, Mapping[str, Any]] | None = None,
) -> WrittenExamples:
    """Create an example from each run, with its inputs and files, in one version: all or none.

    `with_outputs` takes the outputs of the runs as reference outputs, `corrections` by run are
    taken in their place. Raises `SourceRunNotFound`, and `ExampleRefused` for a run that does not
    fit the dataset.
    """
    split = list(splits) or None
    outputs = {} if with_outputs else dict.fromkeys(run_ids, msgspec.Raw())
    outputs |= {
        run_id: msgspec.Raw(dumps(correction)) for run_id, correction in (corrections or {}).items()
    }
    wires = [
        WireExample(source_run_id=run_id, use_source_run_io=True, split=split) for run_id in run_ids
    ]
    if outputs:
        runs = fetch_source_runs(dataset.workspace_id, wires)
        wires = [
            WireExample(
                source_run_id=run_id,
                inputs=runs[run_id].inputs,
                outputs=outputs.get(run_id, runs[run_id].outputs),
                use_source_run_attachments=[
                    file.name for file in runs[run_id].attachments if not file.is_medium
                ],
                split=split,
            )
            for run_id in run_ids
        ]
    return create_examples(dataset=dataset, examples=[NewExample(wire) for wire in wires])
