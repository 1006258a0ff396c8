from __future__ import annotations

from tests.tracing.conftest import (
    api,
    forget_known_partitions,
    make_api,
    objects,
    other_workspace,
)

__all__ = ["api", "forget_known_partitions", "make_api", "objects", "other_workspace"]
