"""Builders of traces with chosen times, trees, tokens and failures, for statistics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from apps.organizations.models import Workspace
from apps.trace_store.postgres.postprocess import processor
from apps.trace_store.postgres.rollups import build
from apps.tracing.models import Project
from tests.factories.tracing import wire_run

NOON = (datetime.now(UTC) - timedelta(days=3)).replace(hour=12, minute=0, second=0, microsecond=0)
"""Three days ago, so that every time bucket around it has ended."""


def build_run(
    minutes: float = 0,
    *,
    parent: dict[str, Any] | None = None,
    seconds: float | None = 1,
    tokens: tuple[int, int] | None = None,
    cost: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """Build a run that starts `minutes` after noon; with `seconds=None` it is still running."""
    start = NOON + timedelta(minutes=minutes)
    end_time = None if seconds is None else (start + timedelta(seconds=seconds)).isoformat()
    payload = wire_run(parent, start=start, end_time=end_time, **fields)
    if tokens is not None:
        usage: dict[str, Any] = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        if cost is not None:
            usage["input_cost"] = cost
        payload["outputs"] = {"usage_metadata": usage}
    return payload


def build_model_run(minutes: float = 0, **fields: Any) -> dict[str, Any]:
    fields.setdefault("tokens", (10, 5))
    return build_run(minutes, **{"run_type": "llm", "name": "model"} | fields)


def process_pending_runs() -> None:
    processor.process_all()


def build_rollups() -> None:
    """Process all pending runs and build all rollups."""
    process_pending_runs()
    build.rebuild_dirty_intervals(quiet=timedelta(0))


def project_id_of(workspace: Workspace, name: str = "default") -> UUID:
    return Project.objects.for_workspace(workspace).get(name=name).pk


def ids(runs: Sequence[dict[str, Any]]) -> list[str]:
    return [build_run["id"] for build_run in runs]
