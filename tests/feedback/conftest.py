from __future__ import annotations

from tests.tracing.conftest import api, api_of, objects, stranger, workspace

__all__ = ["api", "api_of", "objects", "stranger", "workspace"]
