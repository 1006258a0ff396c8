from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from apps.datasets.models import Dataset, ExampleRevision
from apps.organizations.models import Workspace
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import Project
from apps.tracing.services import create_project
from tests.factories.datasets import make_dataset
from tests.factories.tracing import ingest, wire_run
from tests.tracing.conftest import (
    api,
    make_api,
    objects,
    other_workspace,
    page,
    project,
)

__all__ = ["api", "make_api", "objects", "other_workspace", "page", "project"]

START = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Experiment:
    """An experiment with a finished run for each example, in the order of the examples."""

    workspace: Workspace
    project: Project
    runs: dict[UUID, list[UUID]] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return str(self.project.pk)

    def add_run(self, example_id: UUID, **fields: Any) -> UUID:
        """Store a run of the example, one minute after the last one."""
        minute = sum(len(runs) for runs in self.runs.values())
        run = wire_run(
            session_name=self.project.name,
            reference_example_id=str(example_id),
            start=self.project.start_time + timedelta(minutes=minute),
            **fields,
        )
        ingest(self.workspace, run)
        run_id = UUID(run["id"])
        self.runs.setdefault(example_id, []).append(run_id)
        return run_id


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    """A dataset with the questions 0, 1 and 2."""
    return make_dataset(workspace, *({"question": number} for number in range(3)), name="questions")


@pytest.fixture
def examples(dataset: Dataset) -> list[UUID]:
    """The ids of the dataset's examples, by question."""
    rows = ExampleRevision.objects.for_workspace(dataset.workspace_id).filter(dataset=dataset)
    return [row.example_id for row in sorted(rows, key=lambda row: row.inputs["question"])]


@pytest.fixture
def make_experiment(workspace: Workspace, dataset: Dataset) -> Callable[..., Experiment]:
    """Return a function `make_experiment(name, *example_ids)`."""
    count = 0

    def make(name: str, *example_ids: UUID, **fields: Any) -> Experiment:
        nonlocal count
        count += 1
        row = create_project(
            workspace_id=workspace.pk,
            name=name,
            reference_dataset_id=dataset.pk,
            start_time=START + timedelta(hours=count),
            **fields,
        )
        experiment = Experiment(workspace, row)
        for example_id in example_ids:
            experiment.add_run(example_id, outputs={"answer": name})
        process_all()
        return experiment

    return make


@pytest.fixture
def score(api: Any) -> Callable[..., None]:
    """Return a function `score(run_id, key, score)` that gives feedback on a run."""

    def give(run_id: UUID, key: str, value: float, **fields: Any) -> None:
        body = {"run_id": str(run_id), "key": key, "score": value, **fields}
        response = api.post("/feedback", body)
        assert response.status_code == 200, response.content

    return give
