from __future__ import annotations

import pytest

from apps.datasets.models import Dataset
from apps.organizations.models import Workspace
from tests.factories.datasets import make_dataset
from tests.tracing.conftest import (
    api,
    make_api,
    objects,
    other_workspace,
    page,
    project,
)

__all__ = ["api", "make_api", "objects", "other_workspace", "page", "project"]


@pytest.fixture
def dataset(workspace: Workspace) -> Dataset:
    """An empty dataset."""
    return make_dataset(workspace)
