"""Decodes the body of a new experiment job; unknown fields are refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec


class WireExperimentJob(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An experiment to run on a deployment; null and absent are equivalent."""

    deployment_id: UUID
    assistant_id: str | None = None
    experiment_name: str | None = None
    experiment_prefix: str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    as_of: str | None = None
    splits: list[str] | None = None
    input_mapping: dict[str, Any] | None = None
    repetitions: int | None = None
    concurrency: int | None = None
    evaluator_rule_ids: list[UUID] | None = None
    """Without it, all enabled rules of the dataset score the rows."""
