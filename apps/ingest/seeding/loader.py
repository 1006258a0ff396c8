"""Writes generated traces in the state after post-processing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from apps.core.json import Fragment, dumps
from apps.ingest.seeding.steps import StepContent
from apps.ingest.seeding.traces import SeededRun, TraceContext
from apps.trace_store import Payload, RunRow, Usage, run_store
from apps.trace_store.filters.subjects import FilterSubject
from apps.trace_store.filters.terms import (
    RunTerms,
    extract_content_terms,
    join_terms,
    with_labels,
)
from apps.trace_store.run_status import Status
from apps.trace_store.run_writes import FinishedRun

PlacedRun = tuple[UUID, SeededRun]
"""A project id and a run."""


@dataclass(slots=True)
class Loader:
    """Writes runs of one workspace; shared values are built once."""

    workspace_id: UUID
    attachments: Mapping[UUID, bytes] = field(default_factory=dict)
    """The attachments column by run id, for runs that have any."""
    _step_terms: dict[int, tuple[StepContent, RunTerms]] = field(default_factory=dict)

    def load(self, runs: Sequence[PlacedRun]) -> None:
        """Append the runs in the caller's transaction."""
        run_store.append_finished(
            self.workspace_id, [self._to_finished_run(*placed_run) for placed_run in runs]
        )

    def _to_finished_run(self, project_id: UUID, run: SeededRun) -> FinishedRun:
        step, context = run.step, run.context
        columns = {
            "workspace_id": self.workspace_id,
            "id": run.id,
            "project_id": project_id,
            "partition_time": run.start_time,
            "trace_id": run.trace_id,
            "parent_run_id": None if run.parent is None else run.parent.id,
            "is_created": True,
            "start_time": run.start_time,
            "end_time": run.end_time,
            "received_at": run.end_time or run.start_time,
            "dotted_order": run.dotted_order,
            "name": step.name,
            "run_type": step.run_type,
            "model": step.model,
            "thread_key": context.thread,
            "error_preview": step.error_preview,
            "inputs_preview": step.inputs_preview,
            "outputs_preview": step.outputs_preview,
            "tags": context.tags,
            "metadata": _encode_metadata(context, step.model, step.provider),
            "attachments": self.attachments.get(run.id),
            **step.usage,
            **_sums(run),
        }
        return FinishedRun(columns, step.payloads, self._terms(run))

    def _terms(self, run: SeededRun) -> RunTerms:
        step = run.step
        cached = self._step_terms.get(id(step))
        if cached is None or cached[0] is not step:
            # Keep a reference to the step, so that its `id()` is not reused.
            cached = self._step_terms[id(step)] = (step, _terms_of_step(step))
        content = _terms_of_context(run.context, step.model, step.provider)
        status = Status.SUCCESS if step.error is None else Status.ERROR
        return with_labels(
            join_terms(cached[1], content), status, step.run_type, is_root=run.parent is None
        )


def _sums(run: SeededRun) -> dict[str, Any]:
    """The totals of the descendants."""
    prompt_tokens, completion_tokens, prompt_cost, completion_cost = run.sums
    if not prompt_tokens:
        return {}
    return {
        "sum_prompt_tokens": prompt_tokens,
        "sum_completion_tokens": completion_tokens,
        "sum_total_tokens": prompt_tokens + completion_tokens,
        "sum_prompt_cost": prompt_cost,
        "sum_completion_cost": completion_cost,
        "sum_total_cost": prompt_cost + completion_cost,
    }


@lru_cache(maxsize=4096)
def _encode_metadata(context: TraceContext, model: str | None, provider: str | None) -> bytes:
    metadata = {
        "customer": context.customer,
        "environment": context.environment,
        "revision_id": context.revision,
        "thread_id": context.thread,
        "ls_model_name": model,
        "ls_provider": provider,
    }
    return dumps({name: value for name, value in metadata.items() if value is not None})


@lru_cache(maxsize=4096)
def _terms_of_context(context: TraceContext, model: str | None, provider: str | None) -> RunTerms:
    metadata = _encode_metadata(context, model, provider)
    row = _row(context.tags, metadata, thread=context.thread, model=model)
    return extract_content_terms(FilterSubject(run=row))


def _terms_of_step(step: StepContent) -> RunTerms:
    payloads = {
        name: dumps(value)
        for name, value in (
            (Payload.INPUTS, step.inputs),
            (Payload.OUTPUTS, step.outputs),
            (Payload.ERROR, step.error),
        )
        if value is not None
    }
    subject = FilterSubject(
        run=_row((), b"{}", name=step.name),
        inputs=payloads.get(Payload.INPUTS),
        outputs=payloads.get(Payload.OUTPUTS),
        error=payloads.get(Payload.ERROR),
    )
    return extract_content_terms(subject)


def _row(
    tags: Sequence[str],
    metadata: bytes,
    *,
    name: str = "",
    thread: str | None = None,
    model: str | None = None,
) -> RunRow:
    """A row with the fields that determine its search terms."""
    no_id, no_time = UUID(int=0), datetime.min.replace(tzinfo=UTC)
    return RunRow(
        workspace_id=no_id,
        project_id=no_id,
        id=no_id,
        trace_id=no_id,
        parent_run_id=None,
        dotted_order="",
        partition_time=no_time,
        name=name,
        run_type="chain",
        start_time=no_time,
        end_time=None,
        first_token_time=None,
        received_at=no_time,
        error_preview=None,
        inputs_preview=None,
        outputs_preview=None,
        tags=tags,
        metadata_json=Fragment(metadata),
        thread_key=thread,
        model=model,
        reference_example_id=None,
        attachments=[],
        usage=Usage(),
    )
