from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from apps.annotation.models import AnnotationQueue, QueueItem
from apps.organizations.models import User, Workspace
from tests.console.conftest import create_workspace_user
from tests.experiments.conftest import dataset, examples, make_experiment, score
from tests.factories.annotation import fill_queue, make_queue
from tests.factories.tracing import stored_run
from tests.tracing.conftest import api, make_api, objects, other_workspace, page, project

__all__ = [
    "api",
    "dataset",
    "examples",
    "make_api",
    "make_experiment",
    "objects",
    "other_workspace",
    "page",
    "project",
    "score",
]


@pytest.fixture
def queue(workspace: Workspace) -> AnnotationQueue:
    return make_queue(workspace)


@pytest.fixture
def run_ids(workspace: Workspace) -> list[UUID]:
    """Three runs of the workspace."""
    return [stored_run(workspace, name=f"run {number}") for number in range(3)]


@pytest.fixture
def items(queue: AnnotationQueue, run_ids: list[UUID]) -> list[QueueItem]:
    """The three runs in the queue, in order."""
    return fill_queue(queue, run_ids)


@pytest.fixture
def make_reviewer(workspace: Workspace) -> Callable[[], User]:
    """Return a function that creates an annotator of the workspace."""
    return lambda: create_workspace_user(workspace, "annotator")
