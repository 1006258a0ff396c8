"""Loads runs for the reference evaluator, with the content that a filter needs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from apps.core.connections import raw_cursor
from apps.trace_store.filters.fields import ItemKind
from apps.trace_store.filters.nodes import And, AnyItem, Comparison, Condition, Expression, Not, Or
from apps.trace_store.filters.subjects import FeedbackItem, FilterSubject
from apps.trace_store.postgres.payload_storage import with_payloads
from apps.trace_store.types import Payload, RunRow

_ALL_CONTENT = frozenset({Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR})
_SEARCHED_PAYLOADS = {
    "": _ALL_CONTENT,
    "inputs": frozenset({Payload.INPUTS}),
    "outputs": frozenset({Payload.OUTPUTS}),
    "error": frozenset({Payload.ERROR}),
}
_ITEM_PAYLOADS = {
    ItemKind.INPUTS: frozenset({Payload.INPUTS}),
    ItemKind.OUTPUTS: frozenset({Payload.OUTPUTS}),
}
_NO_PAYLOADS: frozenset[Payload] = frozenset()


@dataclass(frozen=True, slots=True)
class RequiredData:
    """The data that must be loaded for a filter in addition to the row."""

    payloads: frozenset[Payload] = frozenset()
    has_feedback: bool = False
    has_dataset: bool = False


def required_data(expression: Expression) -> RequiredData:
    """Return the data that the reference evaluator reads for this filter."""
    payloads, has_feedback, has_dataset = _NO_PAYLOADS, False, False
    for leaf in _leaves(expression):
        if isinstance(leaf, AnyItem):
            payloads |= _ITEM_PAYLOADS.get(leaf.items, _NO_PAYLOADS)
            has_feedback |= leaf.items is ItemKind.FEEDBACK
        elif leaf.comparison is Comparison.SEARCH:
            payloads |= _SEARCHED_PAYLOADS.get(leaf.field.name, _NO_PAYLOADS)
        elif leaf.field.name == "error" and leaf.comparison is not Comparison.PRESENT:
            payloads |= {Payload.ERROR}
        else:
            has_dataset |= leaf.field.name == "reference_dataset_id"
    return RequiredData(payloads, has_feedback, has_dataset)


def _leaves(expression: Expression) -> Iterator[AnyItem | Condition]:
    match expression:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _leaves(part)
        case Not(part):
            yield from _leaves(part)
        case _:
            yield expression


def load_subjects(
    workspace_id: UUID, rows: Sequence[RunRow], required: RequiredData | None = None
) -> list[FilterSubject]:
    """Load the runs in their order; without `required`, with all content."""
    required = required or RequiredData(_ALL_CONTENT, has_feedback=True, has_dataset=True)
    feedback = (
        _load_feedback(workspace_id, {row.id for row in rows}) if required.has_feedback else {}
    )
    project_ids = {row.project_id for row in rows}
    datasets = _load_datasets(workspace_id, project_ids) if required.has_dataset else {}
    return [
        FilterSubject(
            run=item.row,
            inputs=item.payloads.get(Payload.INPUTS),
            outputs=item.payloads.get(Payload.OUTPUTS),
            error=item.payloads.get(Payload.ERROR),
            feedback=feedback.get(item.row.id, ()),
            reference_dataset_id=datasets.get(item.row.project_id),
        )
        for item in with_payloads(rows, required.payloads, lazily=True)
    ]


def _load_feedback(workspace_id: UUID, run_ids: Collection[UUID]) -> dict[UUID, list[FeedbackItem]]:
    statement = (
        "SELECT run_id, key, score, value #>> '{}', jsonb_typeof(value) = 'number', comment,"
        " source ->> 'type', is_error, modified_at FROM feedback_feedback"
        " WHERE workspace_id = %s AND run_id = ANY(%s)"
    )
    result: dict[UUID, list[FeedbackItem]] = {}
    with raw_cursor() as cursor:
        cursor.execute(statement, [workspace_id, list(run_ids)])
        for run_id, key, score, value, is_number, comment, source, is_error, modified in cursor:
            row = FeedbackItem(
                key=key,
                score=score,
                value=value,
                value_is_number=bool(is_number),
                comment=comment,
                source=source,
                is_error=is_error,
                modified_at=modified,
            )
            result.setdefault(run_id, []).append(row)
    return result


def _load_datasets(workspace_id: UUID, project_ids: Collection[UUID]) -> dict[UUID, UUID]:
    with raw_cursor() as cursor:
        cursor.execute(
            "SELECT id, reference_dataset_id FROM tracing_project"
            " WHERE workspace_id = %s AND id = ANY(%s) AND reference_dataset_id IS NOT NULL",
            [workspace_id, list(project_ids)],
        )
        return dict(cursor.fetchall())
