from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.tracing.conftest import api, make_api, objects, other_workspace, project

__all__ = ["api", "make_api", "objects", "other_workspace", "project"]


@pytest.fixture
def create_feedback(api: Any) -> Callable[..., None]:
    """Return a function `create_feedback(run_id, key, score=…)`."""

    def create(run_id: UUID, key: str, **fields: Any) -> None:
        response = api.post("/feedback", {"key": key, "run_id": str(run_id), **fields})
        assert response.status_code == 200, response.content

    return create
