"""Traces to be counted: their times, trees, tokens and failures are chosen one by one."""

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
"""Three days ago: every bucket around it is over."""


def run(
    minutes: float = 0,
    *,
    below: dict[str, Any] | None = None,
    seconds: float | None = 1,
    tokens: tuple[int, int] | None = None,
    cost: float | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A run that starts so many minutes after noon and takes so many seconds; None: it goes on."""
    start = NOON + timedelta(minutes=minutes)
    ended = None if seconds is None else (start + timedelta(seconds=seconds)).isoformat()
    made = wire_run(below, start=start, end_time=ended, **fields)
    if tokens is not None:
        usage: dict[str, Any] = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
        if cost is not None:
            usage["input_cost"] = cost
        made["outputs"] = {"usage_metadata": usage}
    return made


def model_call(minutes: float = 0, **fields: Any) -> dict[str, Any]:
    fields.setdefault("tokens", (10, 5))
    return run(minutes, **{"run_type": "llm", "name": "model"} | fields)


def settle() -> None:
    processor.process_all()


def roll_up() -> None:
    """Everything that came is in rollups."""
    settle()
    build.rebuild_dirty_intervals(quiet=timedelta(0))


def project_of(workspace: Workspace, name: str = "default") -> UUID:
    return Project.objects.for_workspace(workspace).get(name=name).pk


def ids(runs: Sequence[dict[str, Any]]) -> list[str]:
    return [run["id"] for run in runs]
