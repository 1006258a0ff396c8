"""Decodes the bodies of comparisons and of uploaded experiments; unknown fields are refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec


class WireComparison(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A comparison to create; null and absent are equivalent."""

    experiment_ids: list[UUID]
    id: UUID | None = None
    name: str | None = None
    description: str | None = None
    reference_dataset_id: UUID | None = None
    created_at: str | None = None
    modified_at: str | None = None
    extra: dict[str, Any] | None = None


class WireScore(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A score of an uploaded run or experiment."""

    key: str
    score: float | bool | None = None
    value: Any = None
    comment: str | None = None
    correction: Any = None
    feedback_source: dict[str, Any] | None = None
    feedback_config: dict[str, Any] | None = None
    created_at: str | None = None


class WireResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An example and the run on it; rows with the same `row_id` are repetitions."""

    row_id: UUID
    inputs: msgspec.Raw
    start_time: str
    end_time: str
    expected_outputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    actual_outputs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    evaluation_scores: list[WireScore] | None = None
    run_name: str | None = None
    error: str | None = None
    run_metadata: dict[str, Any] | None = None


class WireUpload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A finished experiment, with the dataset that it ran on."""

    experiment_name: str
    experiment_start_time: str
    experiment_end_time: str
    results: list[WireResult]
    experiment_description: str | None = None
    experiment_metadata: dict[str, Any] | None = None
    summary_experiment_scores: list[WireScore] | None = None
    dataset_id: UUID | None = None
    dataset_name: str | None = None
    dataset_description: str | None = None
