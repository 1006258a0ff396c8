"""Finds the price map entry of a model call, with a cache per workspace."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from apps.trace_store.pricing import entries
from apps.trace_store.pricing.entries import PriceEntry
from apps.tracing.models import ModelPrice

CACHE_SECONDS = 2.0
"""Seconds until a change by another process is visible."""
_MAX_MODELS = 5000
_MAX_WORKSPACES = 2000
_ALWAYS = datetime.min.replace(tzinfo=UTC)

_Names = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _CachedPrices:
    """The entries of a workspace and the candidates by model."""

    own: Sequence[PriceEntry]
    version: tuple[int, datetime | None]
    seen_at: float
    candidates: dict[tuple[str | None, _Names], Sequence[PriceEntry]] = field(default_factory=dict)


_lock = threading.Lock()
_workspaces: dict[UUID, _CachedPrices] = {}


def find_entry(
    workspace_id: UUID, names: Mapping[str, str], provider: str | None, start: datetime | None
) -> PriceEntry | None:
    """The entry for a model with these names at this time.

    Entries of the workspace precede built-in ones, entries of the same provider those of any
    provider, and then the newest entry that was valid at the start of the run wins.
    """
    if not names:
        return None
    known = _load(workspace_id)
    key = entries.normalize_provider(provider), tuple(sorted(names.items()))
    candidates = known.candidates.get(key)
    if candidates is None:
        if len(known.candidates) >= _MAX_MODELS:
            known.candidates.clear()
        candidates = known.candidates[key] = _candidates(known.own, names, key[0])
    at = start or datetime.now(UTC)
    return next(
        (candidate for candidate in candidates if (candidate.start_time or _ALWAYS) <= at), None
    )


def invalidate(workspace_id: UUID) -> None:
    """Drop the cached entries, so that this process sees its own change at once."""
    with _lock:
        _workspaces.pop(workspace_id, None)


def _candidates(
    own: Sequence[PriceEntry], names: Mapping[str, str], provider: str | None
) -> Sequence[PriceEntry]:
    """All matching entries in order of precedence."""
    # `ls_model_name` also counts as the name under every other path.
    wide = names
    if (match := names.get("ls_model_name")) is not None:
        wide = {**dict.fromkeys(entries.MATCH_PATHS, match), **names}
    results: list[PriceEntry] = []
    for group in (own, entries.built_in_entries()):
        fitting = [
            (_provider_rank(result, provider), -_seconds(result), place, result)
            for place, result in enumerate(group)
            if _provider_rank(result, provider) is not None and result.fits(wide)
        ]
        results += [result for *_, result in sorted(fitting, key=lambda each: each[:3])]
    return results


def _provider_rank(entry: PriceEntry, provider: str | None) -> int | None:
    """Rank of the provider match: same, any, unknown; None if they differ."""
    if entry.provider is None:
        return 1
    if provider is None:
        return 2
    return 0 if entry.provider == provider else None


def _load(workspace_id: UUID) -> _CachedPrices:
    known = _workspaces.get(workspace_id)
    now = time.monotonic()
    if known is not None and now - known.seen_at < CACHE_SECONDS:
        return known
    rows = ModelPrice.objects.for_workspace(workspace_id)
    version = rows.version()
    if known is not None and known.version == version:
        known.seen_at = now
        return known
    own = [
        result
        for row in rows.newest_first()
        if (result := entries.entry_from_model(row)) is not None
    ]
    known = _CachedPrices(own, version, now)
    with _lock:
        if len(_workspaces) >= _MAX_WORKSPACES:
            _workspaces.clear()
        _workspaces[workspace_id] = known
    return known


def _seconds(entry: PriceEntry) -> float:
    return entry.start_time.timestamp() if entry.start_time else float("-inf")
