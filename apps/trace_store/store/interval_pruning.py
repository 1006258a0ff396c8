"""Where in a project's time the runs of a query may lie: what rollups leave of it.

A stretch is left out only when rows that stand for all of its runs say that none can be meant.
Whatever they do not stand for is looked at: what changed, what is unsettled, what is astray.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from apps.trace_store.store import rollup_plan
from apps.trace_store.store.misplaced_runs import astray
from apps.trace_store.store.pruning import Hint
from apps.trace_store.store.rollup_intervals import EARLIEST, LATEST, Span
from apps.trace_store.store.rollup_plan import Cell

Quarter = tuple[datetime, UUID]
"""Its beginning, and the project."""


def quarters(
    workspace_id: UUID,
    project_ids: Sequence[UUID],
    hint: Hint,
    between: tuple[datetime | None, datetime | None],
    *,
    oldest_first: bool,
) -> Iterator[Quarter] | None:
    """The quarters that may hold such a run, in the order of lists, each with its project.

    None when rows tell too little about these projects.
    """
    begin = max((between[0] or EARLIEST).astimezone(UTC), EARLIEST)
    end = max(min((between[1] or LATEST).astimezone(UTC), LATEST), begin)
    # Whole quarters: who walks through them keeps to the bounds itself.
    edges = [Span.QUARTER.begin(begin), Span.QUARTER.begin(end) + Span.QUARTER.width]
    plan = rollup_plan.plan(workspace_id, project_ids, edges, hint.rolled)
    others = astray(workspace_id, project_ids, placed=(edges[0], edges[1]))
    if others is None:
        return None
    unknown = {(at, project_id) for project_id, at in plan.quarters}
    unknown |= {(Span.QUARTER.begin(placed_at), project_id) for placed_at, project_id in others}
    cells = _promising(workspace_id, plan.cells, hint)
    return _in_order(workspace_id, cells, hint, unknown, oldest_first=oldest_first)


def _in_order(
    workspace_id: UUID,
    cells: Sequence[Cell],
    hint: Hint,
    unknown: Collection[Quarter],
    *,
    oldest_first: bool,
) -> Iterator[Quarter]:
    """The coarse spans are looked into one after another: a page is often full before the last."""
    waiting = set(unknown)
    for some, reach in _parts_of_time(cells, oldest_first=oldest_first):
        waiting.update(_finest(workspace_id, some, hint))
        ready = {one for one in waiting if (one[0] < reach) == oldest_first}
        waiting -= ready
        yield from sorted(ready, reverse=not oldest_first)
    yield from sorted(waiting, reverse=not oldest_first)


def _parts_of_time(
    cells: Sequence[Cell], *, oldest_first: bool
) -> Iterator[tuple[Sequence[Cell], datetime]]:
    """The cells in portions that grow, each with all that lies before, or after, that time."""
    if oldest_first:
        cells = sorted(cells, key=lambda cell: cell.begins_at)
    else:
        cells = sorted(cells, key=lambda cell: cell.ends_at, reverse=True)
    at, size = 0, 1
    while at < len(cells):
        some = cells[at : at + size]
        if oldest_first:
            reach = max(cell.ends_at for cell in some)
        else:
            reach = min(cell.begins_at for cell in some)
        # Spans of several projects overlap.
        end = at + len(some)
        while end < len(cells) and (
            cells[end].begins_at < reach if oldest_first else cells[end].ends_at > reach
        ):
            end += 1
        yield cells[at:end], reach
        at, size = end, 2 * size


def _finest(workspace_id: UUID, cells: Sequence[Cell], hint: Hint) -> Iterator[Quarter]:
    """The quarters within these spans that may hold such a run."""
    for span in (Span.HOUR, Span.QUARTER):
        done = [cell for cell in cells if cell.span <= span]
        parts = [part for cell in cells if cell.span > span for part in _parts(cell, span)]
        # What a clean span was made of is clean.
        cells = [*done, *_promising(workspace_id, parts, hint)]
    for cell in cells:
        yield cell.begins_at, cell.project_id


def _parts(cell: Cell, span: Span) -> Iterator[Cell]:
    at = cell.begins_at
    while at < cell.ends_at:
        yield replace(cell, span=span, begins_at=at)
        at += span.width


def _promising(workspace_id: UUID, cells: Sequence[Cell], hint: Hint) -> list[Cell]:
    found: dict[Cell, None] = {}
    for cell, ends in rollup_plan.ends(workspace_id, cells, hint.rolled, hint.measures):
        if all(bound.may_be_met(ends.get(bound.measure)) for bound in hint.bounds):
            found[cell] = None
    return list(found)
