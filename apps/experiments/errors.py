"""Errors of experiments, each with a stable code."""

from __future__ import annotations

from apps.core import errors


class ComparisonNotFound(errors.NotFound):
    code, detail = "comparison_not_found", "No such comparison of experiments."


class ComparisonIdTaken(errors.Conflict):
    code, detail = "comparison_id_taken", "This comparison `id` cannot be used; choose another."


class DatasetNotExternal(errors.Conflict):
    """Only datasets that an upload created accept uploaded experiments."""

    code = "dataset_not_external"
    detail = "Experiments can be uploaded only to a dataset that an upload created."
