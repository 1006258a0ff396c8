"""Template context that all pages of one dataset share."""

from __future__ import annotations

from typing import Any

from apps.datasets.models import Dataset
from apps.datasets.services.datasets import ExperimentCounts, count_experiments
from apps.organizations.permissions import Permission
from apps.web_ui.pages import PageRequest


def dataset_context(request: PageRequest, dataset: Dataset, tab: str) -> dict[str, Any]:
    """Return the context of `datasets/dataset_base.html`, in at most one query.

    `tab` is `examples`, `experiments`, `evaluators`, `versions` or `settings`.
    """
    caller = request.caller
    may_read_experiments = caller.may(Permission.EXPERIMENTS_READ)
    counts = (
        count_experiments(dataset.workspace_id, [dataset.pk]).get(dataset.pk)
        if may_read_experiments
        else None
    )
    return {
        "dataset": dataset,
        "tab": tab,
        "experiment_count": (counts or ExperimentCounts()).count,
        "may_write": caller.may(Permission.DATASETS_WRITE),
        "may_delete": caller.may(Permission.DATASETS_DELETE),
        "may_share": caller.may(Permission.DATASETS_SHARE),
        "may_read_experiments": may_read_experiments,
        "may_read_evaluators": caller.may(Permission.EVALUATORS_READ),
        "may_read_runs": caller.may(Permission.RUNS_READ),
    }
