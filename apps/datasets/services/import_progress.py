"""Progress and cancellation of imports, shared by the processes through the cache.

The import itself is one transaction of one request: if its process ends, nothing is imported.
"""

from __future__ import annotations

from uuid import UUID

from django.core.cache import cache

from apps.core import errors as core_errors

_SECONDS = 3600


class ImportCancelled(core_errors.Conflict):
    code, detail = "import_cancelled", "The import was cancelled. Nothing was imported."


class ImportProgress:
    """The progress of one import of a workspace."""

    def __init__(self, workspace_id: UUID, import_id: UUID) -> None:
        self._count_key = f"datasets.import:{workspace_id}:{import_id}:count"
        self._cancel_key = f"datasets.import:{workspace_id}:{import_id}:cancelled"

    def start(self) -> None:
        cache.set(self._count_key, 0, _SECONDS)

    def advance(self, count: int) -> None:
        """Record the number of imported rows; raises `ImportCancelled`."""
        if cache.get(self._cancel_key):
            raise ImportCancelled
        cache.set(self._count_key, count, _SECONDS)

    def finish(self) -> None:
        cache.delete_many([self._count_key, self._cancel_key])

    @property
    def count(self) -> int | None:
        """Return the number of rows; None for an import that is not running."""
        value: int | None = cache.get(self._count_key)
        return value

    def cancel(self) -> bool:
        """Ask the import to end; return whether it is running."""
        if self.count is None:
            return False
        cache.set(self._cancel_key, 1, _SECONDS)
        return True
