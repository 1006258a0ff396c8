"""Writes seeded traces as if they had come, been stored and been settled: by `COPY`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from apps.core.json import Fragment, dumps
from apps.ingest.seeding.steps import Step
from apps.ingest.seeding.traces import Context, SeededRun
from apps.trace_store.filters.subjects import Subject
from apps.trace_store.filters.terms import ANYTHING, terms_of
from apps.trace_store.store.raw import raw_cursor, sql
from apps.trace_store.store.sums import KINDS as AMOUNTS
from apps.trace_store.store.terms import copy_terms, of_workspace, packed
from apps.trace_store.store.types import Payload, RunRow, Usage

_RUN = {
    "workspace_id": "uuid",
    "id": "uuid",
    "project_id": "uuid",
    "placed_at": "timestamptz",
    "trace_id": "uuid",
    "parent_run_id": "uuid",
    "is_begun": "bool",
    "start_time": "timestamptz",
    "end_time": "timestamptz",
    "received_at": "timestamptz",
    "dotted_order": "text",
    "name": "text",
    "run_type": "text",
    "model": "text",
    "thread_key": "text",
    "error_preview": "text",
    "inputs_preview": "text",
    "outputs_preview": "text",
    "tags": "text[]",
    "metadata": "bytea",  # in binary, jsonb is a version byte and text
    "attachments": "bytea",
    **AMOUNTS,
    **{f"sum_{name}": kind for name, kind in AMOUNTS.items()},
}
_SAID = ("inputs", "outputs", "extra", "error")
_PAYLOAD = {
    "workspace_id": "uuid",
    "id": "uuid",
    "project_id": "uuid",
    "placed_at": "timestamptz",
    "is_begun": "bool",
    **dict.fromkeys(_SAID, "bytea"),
}
_NO_SUMS = (None,) * len(AMOUNTS)


Placed = tuple[UUID, SeededRun]
"""A run with its project."""


@dataclass(slots=True)
class Loader:
    """Writes runs of one workspace; what many of them share is made once."""

    workspace_id: UUID
    attachments: Mapping[UUID, bytes] = field(default_factory=dict)
    """Of the runs that have some: as the column has them."""
    _content: dict[int, tuple[Step, list[int]]] = field(default_factory=dict)

    def load(self, runs: Sequence[Placed]) -> None:
        """Append the runs, in the caller's transaction."""
        self._copy("tracing_run", _RUN, (self._run(*one) for one in runs))
        self._copy("tracing_runpayload", _PAYLOAD, (self._payload(*one) for one in runs))
        copy_terms(
            (self.workspace_id, project_id, run.start_time, run.id, self._terms(run))
            for project_id, run in runs
        )

    @staticmethod
    def _copy(table: str, columns: Mapping[str, str], rows: Iterator[Sequence[Any]]) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
        with raw_cursor() as cursor, cursor.copy(sql(statement)) as copy:
            copy.set_types(list(columns.values()))
            for row in rows:
                copy.write_row(row)

    def _run(self, project_id: UUID, run: SeededRun) -> Sequence[Any]:
        step, context = run.step, run.context
        usage = step.usage
        attachments = self.attachments.get(run.id)
        return (
            self.workspace_id,
            run.id,
            project_id,
            run.start_time,
            run.trace_id,
            None if run.parent is None else run.parent.id,
            True,
            run.start_time,
            run.end_time,
            run.end_time or run.start_time,
            run.dotted_order,
            step.name,
            step.run_type,
            step.model,
            context.thread,
            step.error_preview,
            step.inputs_preview,
            step.outputs_preview,
            list(context.tags),
            b"\x01" + _metadata(context, step.model, step.provider),
            None if attachments is None else b"\x01" + attachments,
            *[usage.get(name) for name in AMOUNTS],
            *_sums(run),
        )

    def _payload(self, project_id: UUID, run: SeededRun) -> Sequence[Any]:
        said = run.step.payloads
        key = (self.workspace_id, run.id, project_id, run.start_time, True)
        return (*key, *[said.get(name) for name in _SAID])

    def _terms(self, run: SeededRun) -> bytes:
        step = run.step
        known = self._content.get(id(step))
        if known is None or known[0] is not step:
            # The step is kept beside its terms: as long as it is, nothing else has its number.
            known = self._content[id(step)] = (step, _terms_of_step(step))
        if ANYTHING in known[1]:
            found = [ANYTHING]
        else:
            found = known[1] + _terms_of_context(run.context, step.model, step.provider)
        return packed(of_workspace(self.workspace_id, found))


def _sums(run: SeededRun) -> Sequence[Any]:
    prompt_tokens, completion_tokens, prompt_cost, completion_cost = run.sums
    if not prompt_tokens:
        return _NO_SUMS
    return (
        prompt_tokens,
        completion_tokens,
        prompt_tokens + completion_tokens,
        prompt_cost,
        completion_cost,
        prompt_cost + completion_cost,
    )


@lru_cache(maxsize=4096)
def _metadata(context: Context, model: str | None, provider: str | None) -> bytes:
    said = {
        "customer": context.customer,
        "environment": context.environment,
        "revision_id": context.revision,
        "thread_id": context.thread,
        "ls_model_name": model,
        "ls_provider": provider,
    }
    return dumps({name: value for name, value in said.items() if value is not None})


@lru_cache(maxsize=4096)
def _terms_of_context(context: Context, model: str | None, provider: str | None) -> list[int]:
    metadata = _metadata(context, model, provider)
    row = _row(context.tags, metadata, thread=context.thread, model=model)
    return terms_of(Subject(run=row))


def _terms_of_step(step: Step) -> list[int]:
    said = {
        name: dumps(value)
        for name, value in (
            (Payload.INPUTS, step.inputs),
            (Payload.OUTPUTS, step.outputs),
            (Payload.ERROR, step.error),
        )
        if value is not None
    }
    subject = Subject(
        run=_row((), b"{}", name=step.name),
        inputs=said.get(Payload.INPUTS),
        outputs=said.get(Payload.OUTPUTS),
        error=said.get(Payload.ERROR),
    )
    return terms_of(subject)


def _row(
    tags: Sequence[str],
    metadata: bytes,
    *,
    name: str = "",
    thread: str | None = None,
    model: str | None = None,
) -> RunRow:
    """As much of a run as its terms come from."""
    nobody, never = UUID(int=0), datetime.min.replace(tzinfo=UTC)
    return RunRow(
        workspace_id=nobody,
        project_id=nobody,
        id=nobody,
        trace_id=nobody,
        parent_run_id=None,
        dotted_order="",
        placed_at=never,
        name=name,
        run_type="chain",
        start_time=never,
        end_time=None,
        first_token_time=None,
        received_at=never,
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
