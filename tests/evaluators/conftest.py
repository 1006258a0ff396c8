from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from apps.datasets.models import Dataset
from apps.datasets.services.datasets import create_dataset
from apps.datasets.services.examples import create_examples
from apps.evaluators.models import Evaluation
from apps.evaluators.services import evaluations, leases
from apps.evaluators.services.code_queue import CodeQueue
from apps.feedback.models import Feedback
from apps.organizations.models import Workspace
from apps.trace_store.postgres import partitions
from apps.trace_store.postgres.postprocess.processor import process_all
from apps.tracing.models import Project
from apps.tracing.services import create_project
from tests.factories.datasets import new_example
from tests.factories.tracing import ingest, wire_run
from tests.providers.conftest import keys, provider
from tests.tracing.conftest import Api, api, make_api, objects, other_workspace, page, project

__all__ = [
    "api",
    "keys",
    "make_api",
    "objects",
    "other_workspace",
    "page",
    "project",
    "provider",
]


@pytest.fixture(autouse=True)
def forget_partitions() -> Iterator[None]:
    partitions._covered_until.clear()
    yield
    partitions._covered_until.clear()


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    """A dataset with two examples and their reference outputs."""
    dataset = create_dataset(workspace_id=workspace.pk, name="questions")
    examples = [
        new_example({"question": f"Question {n}"}, outputs={"answer": f"Answer {n}"})
        for n in range(2)
    ]
    create_examples(dataset=dataset, examples=examples)
    dataset.refresh_from_db()
    return dataset


@pytest.fixture
def experiment(workspace: Workspace, dataset: Dataset) -> Project:
    return create_project(workspace_id=workspace.pk, name="try-1", reference_dataset_id=dataset.pk)


def add_run(workspace: Workspace, project: Project, **fields: Any) -> UUID:
    """Store a finished root run of the project, as a client sends it."""
    run = wire_run(session_name=project.name, **fields)
    ingest(workspace, run)
    process_all()
    return UUID(run["id"])


def grade(*, correctness: Any = True, comment: str = "It is right.", **fields: Any) -> str:
    """The reply of a judge."""
    return json.dumps({"correctness": correctness, "comment": comment} | fields)


def evaluate(limit: int = 100) -> int:
    """Make the due evaluations as a worker does; return how many."""
    claimed = evaluations.claim(limit)
    for item in claimed:
        outcome = asyncio.run(evaluations.make_call(item))
        if isinstance(outcome, datetime):
            leases.postpone(item, outcome)
        else:
            evaluations.record_end(item, outcome)
    return len(claimed)


def run_code(limit: int = 100) -> int:
    """Run the due functions as a worker does, in the sandbox; return how many jobs there were."""
    queue = CodeQueue()
    jobs = queue.claim(limit, ())
    for job in jobs:
        outcome = asyncio.run(queue.make(job))
        if isinstance(outcome, datetime):
            queue.postpone(job, outcome)
        else:
            queue.record_end(job, outcome)
    return len(jobs)


def feedback_of(run_id: UUID) -> dict[str, Feedback]:
    return {row.key: row for row in Feedback.unscoped.filter(run_id=run_id)}


def only_evaluation() -> Evaluation:
    return Evaluation.unscoped.get()


def create_rule(api: Api, **fields: Any) -> dict[str, Any]:
    """Create a rule through the API; the fields must name its scope and its evaluator."""
    response = api.post("/runs/rules", {"display_name": "Correctness", **fields})
    assert response.status_code == 200, response.content
    return response.json()
