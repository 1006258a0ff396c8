"""Hooks for apps above this one; they are called in the transaction of the change."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.organizations.hooks import Hook

retention_extended: Hook[[UUID, Collection[UUID]]] = Hook()
"""Workspace id and the ids of the traces that feedback keeps for longer."""
