"""Hooks for apps above this one; they are called in the transaction of the change."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.organizations.hooks import Hook

runs_removed: Hook[[UUID, Collection[UUID]]] = Hook()
"""Workspace id and the ids of the removed runs."""
