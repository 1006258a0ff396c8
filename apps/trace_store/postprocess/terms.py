"""Settling: what the runs that came can be found by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

from apps.trace_store.filters.subjects import Subject
from apps.trace_store.filters.terms import terms_of
from apps.trace_store.postprocess import Touched
from apps.trace_store.store import fetching
from apps.trace_store.store.terms import Key, write_terms
from apps.trace_store.store.types import Payload, RunDetail

CONTENT = frozenset({Payload.INPUTS, Payload.OUTPUTS, Payload.ERROR})
_AT_ONCE = 200
"""Runs whose payloads are in memory together: one may have 25 MB."""


def settle(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    for some in _parts(touched):
        keys = [(one.run_id, one.project_id, one.placed_at) for one in some]
        runs = fetching.by_keys(workspace_id, keys, payloads=CONTENT)
        write_terms(workspace_id, [(_key(run), terms_of(_subject(run))) for run in runs])


def _parts(touched: Sequence[Touched]) -> Iterator[Sequence[Touched]]:
    for begin in range(0, len(touched), _AT_ONCE):
        yield touched[begin : begin + _AT_ONCE]


def _key(run: RunDetail) -> Key:
    return run.row.id, run.row.project_id, run.row.placed_at


def _subject(run: RunDetail) -> Subject:
    return Subject(
        run=run.row,
        inputs=run.json(Payload.INPUTS),
        outputs=run.json(Payload.OUTPUTS),
        error=run.json(Payload.ERROR),
    )
