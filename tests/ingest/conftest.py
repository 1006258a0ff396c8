from __future__ import annotations

from tests.tracing.conftest import api, make_api, objects, other_workspace, project

__all__ = ["api", "make_api", "objects", "other_workspace", "project"]
