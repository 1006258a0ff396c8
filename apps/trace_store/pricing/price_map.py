"""Finds the price map entry of a model call, with a cache per workspace."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from uuid import UUID

from apps.trace_store.models import ModelPrice
from apps.trace_store.pricing import entries
from apps.trace_store.pricing.entries import PriceEntry

CACHE_SECONDS = 2.0
"""Seconds until a change by another process is visible."""
_MAX_MODELS = 5000
_MAX_WORKSPACES = 2000
_ALWAYS = datetime.min.replace(tzinfo=UTC)

_Names = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _CachedPrices:
    """The entries of a workspace and the candidates by model."""

    workspace_entries: Sequence[PriceEntry]
    version: tuple[int, datetime | None]
    seen_at: float
    candidates: dict[tuple[str | None, _Names], Sequence[PriceEntry]] = field(default_factory=dict)


_lock = threading.Lock()
_workspaces: dict[UUID, _CachedPrices] = {}


def find_entry(
    workspace_id: UUID, names: Mapping[str, str], provider: str | None, start: datetime | None
) -> PriceEntry | None:
    """The entry for a model with these names at this time.

    Workspace entries precede built-in entries; within each group, entries of the same provider
    precede entries of any provider. Then the newest entry valid at the start of the run wins.
    """
    if not names:
        return None
    cached = _load_prices(workspace_id)
    key = entries.normalize_provider(provider), tuple(sorted(names.items()))
    candidates = cached.candidates.get(key)
    if candidates is None:
        if len(cached.candidates) >= _MAX_MODELS:
            cached.candidates.clear()
        candidates = cached.candidates[key] = _matching_entries(
            cached.workspace_entries, names, key[0]
        )
    started_at = start or datetime.now(UTC)
    return next(
        (entry for entry in candidates if (entry.start_time or _ALWAYS) <= started_at), None
    )


def invalidate(workspace_id: UUID) -> None:
    """Drop the cached entries, so that this process sees a change of prices at once."""
    with _lock:
        _workspaces.pop(workspace_id, None)


def _matching_entries(
    workspace_entries: Sequence[PriceEntry], names: Mapping[str, str], provider: str | None
) -> Sequence[PriceEntry]:
    """All matching entries in order of precedence."""
    # `ls_model_name` also counts as the name under every other path.
    if (model_name := names.get("ls_model_name")) is not None:
        names = {**dict.fromkeys(entries.MATCH_PATHS, model_name), **names}
    known = ((path, names[path][: entries.MAX_NAME_LENGTH]) for path in sorted(names))
    built_in = _matching_built_in_entries(tuple(known), provider)
    return [*_match(workspace_entries, names, provider), *built_in]


@lru_cache(maxsize=_MAX_MODELS)
def _matching_built_in_entries(names: _Names, provider: str | None) -> Sequence[PriceEntry]:
    """The matching built-in entries, which are the same for all workspaces.

    There are hundreds: the catalogue of the playground matched them with each of its models anew.
    """
    return _match(entries.built_in_entries(), dict(names), provider)


def _match(
    group: Sequence[PriceEntry], names: Mapping[str, str], provider: str | None
) -> Sequence[PriceEntry]:
    matches = [
        (rank, -_start_timestamp(entry), index, entry)
        for index, entry in enumerate(group)
        if (rank := _provider_rank(entry, provider)) is not None and entry.matches(names)
    ]
    return [entry for *_, entry in sorted(matches, key=lambda match: match[:3])]


def _provider_rank(entry: PriceEntry, provider: str | None) -> int | None:
    """Rank of the provider match: same, any, unknown; None if they differ."""
    if entry.provider is None:
        return 1
    if provider is None:
        return 2
    return 0 if entry.provider == provider else None


def _load_prices(workspace_id: UUID) -> _CachedPrices:
    cached = _workspaces.get(workspace_id)
    now = time.monotonic()
    if cached is not None and now - cached.seen_at < CACHE_SECONDS:
        return cached
    rows = ModelPrice.objects.for_workspace(workspace_id)
    version = rows.version()
    if cached is not None and cached.version == version:
        cached.seen_at = now
        return cached
    workspace_entries = [
        entry for row in rows.newest_first() if (entry := entries.entry_from_model(row)) is not None
    ]
    cached = _CachedPrices(workspace_entries, version, now)
    with _lock:
        if len(_workspaces) >= _MAX_WORKSPACES:
            _workspaces.clear()
        _workspaces[workspace_id] = cached
    return cached


def _start_timestamp(entry: PriceEntry) -> float:
    return entry.start_time.timestamp() if entry.start_time else float("-inf")
