"""Hooks for apps of higher layers, called in the transaction of the change."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from apps.organizations.hooks import Hook

retention_extended: Hook[[UUID, Collection[UUID]]] = Hook()
"""Called with the workspace id and the ids of traces whose retention feedback extends."""
