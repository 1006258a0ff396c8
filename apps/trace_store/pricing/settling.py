"""Settling: costs of runs whose tokens and model came in different requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from apps.core.json import dumps_text
from apps.trace_store.postprocess import Touched
from apps.trace_store.pricing import costs
from apps.trace_store.pricing.costs import NamedModel
from apps.trace_store.store import pricing


def settle(workspace_id: UUID, touched: Sequence[Touched]) -> None:
    keys = [(one.run_id, one.project_id, one.placed_at) for one in touched]
    priced = []
    for run in pricing.without_costs(workspace_id, keys):
        details: dict[str, Any] = dict(run.details or {})
        columns = run.columns
        costs.add_costs(
            workspace_id, NamedModel({"ls_model_name": run.model}, run.provider), columns, details
        )
        if "price_model_id" in columns:
            priced.append((run.key, columns, dumps_text(details) if details else None))
    pricing.put_costs(workspace_id, priced)
