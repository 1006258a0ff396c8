"""Deeds on the checkpoints of whole threads, as lists of statements with their parameters.

Each list is one transaction, for the engine's connections and for Django's alike. Nobody may be
running on the threads: the caller holds their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.agent_server.engine import statements

Deed = list[tuple[str, list[Any]]]


def delete_threads(threads: Sequence[UUID]) -> Deed:
    """Remove everything that was saved of these threads."""
    return [(text, [list(threads)]) for text in statements.DELETE_THREADS]


def forget_threads(threads: Sequence[UUID]) -> Deed:
    """Remove these threads with everything that belongs to them."""
    rest = [(text, [list(threads)]) for text in statements.FORGET_THREADS]
    return [*delete_threads(threads), *rest]


def copy_thread(source: UUID, target: UUID) -> Deed:
    """Give `target` all checkpoints of `source`, with their ids."""
    return [(text, [target, source]) for text in statements.COPY_THREAD]


def delete_for_runs(threads: Sequence[UUID], run_ids: Sequence[UUID]) -> Deed:
    """Remove what these runs saved on these threads."""
    runs = [list(run_ids), [str(run_id) for run_id in run_ids]]
    return [(statements.DELETE_FOR_RUNS, [list(threads), *runs]), *_collect_garbage(threads)]


def keep_latest(threads: Sequence[UUID]) -> Deed:
    """Remove all but the newest checkpoint of each namespace."""
    return [(statements.KEEP_LATEST, [list(threads)]), *_collect_garbage(threads)]


def _collect_garbage(threads: Sequence[UUID]) -> Deed:
    return [(text, [list(threads)]) for text in statements.COLLECT_GARBAGE]
