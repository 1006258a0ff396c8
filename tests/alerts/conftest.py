from __future__ import annotations

from typing import Any

import pytest

from apps.webhooks import dispatch
from tests.tracing.conftest import api, make_api, objects, other_workspace, page, project

__all__ = ["api", "make_api", "objects", "other_workspace", "page", "project"]


@pytest.fixture(autouse=True)
def local_receivers(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow receivers on this machine, and send no task."""
    settings.ALLOW_PRIVATE_ADDRESSES = True
    monkeypatch.setattr(dispatch, "_send", lambda: None)
