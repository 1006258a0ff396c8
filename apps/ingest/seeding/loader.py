"""Writes generated traces by `COPY`, in the state after post-processing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection

from apps.core.json import Fragment, dumps
from apps.core.raw_sql import raw_cursor, sql
from apps.ingest.seeding.steps import Step
from apps.ingest.seeding.traces import SeededRun, TraceContext
from apps.trace_store import Payload, RunRow, Usage
from apps.trace_store.filters.subjects import FilterSubject
from apps.trace_store.filters.terms import ANYTHING, extract_terms
from apps.trace_store.postgres.postprocess.term_index import copy_terms, encode_terms, salt_terms
from apps.trace_store.postgres.postprocess.trace_totals import TOTAL_TYPES as AMOUNTS

_RUN_COLUMNS = {
    "workspace_id": "uuid",
    "id": "uuid",
    "project_id": "uuid",
    "partition_time": "timestamptz",
    "trace_id": "uuid",
    "parent_run_id": "uuid",
    "is_created": "bool",
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
_PAYLOADS = ("inputs", "outputs", "extra", "error")
_PAYLOAD_COLUMNS = {
    "workspace_id": "uuid",
    "id": "uuid",
    "project_id": "uuid",
    "partition_time": "timestamptz",
    "is_created": "bool",
    **dict.fromkeys(_PAYLOADS, "bytea"),
}
_NO_SUMS = (None,) * len(AMOUNTS)


PlacedRun = tuple[UUID, SeededRun]
"""A project id and a run."""


@dataclass(slots=True)
class Loader:
    """Writes runs of one workspace; shared values are built once."""

    workspace_id: UUID
    attachments: Mapping[UUID, bytes] = field(default_factory=dict)
    """The attachments column by run id, for runs that have any."""
    _step_terms: dict[int, tuple[Step, list[int]]] = field(default_factory=dict)

    def load(self, runs: Sequence[PlacedRun]) -> None:
        """Append the runs in the caller's transaction."""
        self._copy("trace_store_run", _RUN_COLUMNS, (self._run(*item) for item in runs))
        self._copy(
            "trace_store_run_payload", _PAYLOAD_COLUMNS, (self._payload(*item) for item in runs)
        )
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
        payloads = run.step.payloads
        key = (self.workspace_id, run.id, project_id, run.start_time, True)
        return (*key, *[payloads.get(name) for name in _PAYLOADS])

    def _terms(self, run: SeededRun) -> bytes:
        step = run.step
        cached = self._step_terms.get(id(step))
        if cached is None or cached[0] is not step:
            # Keep a reference to the step, so that its `id()` is not reused.
            cached = self._step_terms[id(step)] = (step, _terms_of_step(step))
        if ANYTHING in cached[1]:
            terms = [ANYTHING]
        else:
            terms = cached[1] + _terms_of_context(run.context, step.model, step.provider)
        return encode_terms(salt_terms(self.workspace_id, terms))


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
def _metadata(context: TraceContext, model: str | None, provider: str | None) -> bytes:
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
def _terms_of_context(context: TraceContext, model: str | None, provider: str | None) -> list[int]:
    metadata = _metadata(context, model, provider)
    row = _row(context.tags, metadata, thread=context.thread, model=model)
    return extract_terms(FilterSubject(run=row))


def _terms_of_step(step: Step) -> list[int]:
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
    return extract_terms(subject)


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


# -- bulk load ---------------------------------------------------------------

_TERMS_INDEX = "trace_store_run_terms_terms"
_BULK_SETTINGS = {
    "maintenance_work_mem": "1GB",
    "gin_pending_list_limit": "64MB",
    # After a crash the population is generated again.
    "synchronous_commit": "off",
}


@contextmanager
def bulk_load() -> Iterator[None]:
    """Set options for a bulk load; with empty tables, build the terms index at the end.

    If a load was killed before it built the index, the next load builds it.
    """
    with connection.cursor() as cursor:
        for name, value in _BULK_SETTINGS.items():
            cursor.execute(f"SET {name} = '{value}'")
    try:
        # A test is one transaction, which would lock the table until its end.
        if connection.in_atomic_block:
            yield
        elif _has_runs():
            _build_index()
            yield
        else:
            with _deferred_index():
                yield
    finally:
        with connection.cursor() as cursor:
            for name in _BULK_SETTINGS:
                cursor.execute(f"RESET {name}")


def _has_runs() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM trace_store_run_terms)")
        has_runs: bool = cursor.fetchone()[0]
        return has_runs


@contextmanager
def _deferred_index() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP INDEX IF EXISTS {_TERMS_INDEX}")
    try:
        yield
    finally:
        _build_index()


def _build_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE INDEX IF NOT EXISTS {_TERMS_INDEX} ON trace_store_run_terms USING gin (terms)"
        )
