"""Resolve an agent's slug to its deployment and active revision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.core.ttl_cache import TTLCache
from apps.deployments.models import Deployment
from apps.deployments.serving_config import ServingConfig

_CACHE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Route:
    """The data of a deployment that the web process needs to serve it."""

    deployment_id: UUID
    workspace_id: UUID
    organization_id: UUID
    slug: str
    name: str
    active_revision_id: UUID | None
    """None until the first revision is deployed."""
    config: dict[str, Any]
    """The active revision's `langgraph.json`."""
    tracing: bool
    graph_ids: tuple[str, ...]
    limit: tuple[int, int] | None = None
    """The deployment's request limit: (requests, seconds)."""
    serving: ServingConfig = field(default_factory=ServingConfig, compare=False)
    """The serving configuration of the active revision."""


_cache: TTLCache[str, Route | None] = TTLCache(_CACHE_SECONDS)


def find(slug: str) -> Route | None:
    """Return the route of a slug, at most a second old, or None for an unknown slug."""
    return _cache.get(slug, _load_route)


def cached_route(slug: str) -> tuple[bool, Route | None]:
    """Return whether the slug is cached, and its route; never queries the database."""
    return slug in _cache, _cache.peek(slug)


def clear_cache() -> None:
    """Clear the route cache of this process."""
    _cache.clear()


def _load_route(slug: str) -> Route | None:
    deployments = Deployment.objects.across_workspaces(reason="an agent URL has no workspace id")
    related = deployments.present().select_related("workspace", "active_revision")
    row = related.filter(slug=slug).first()
    if row is None:
        return None
    revision = row.active_revision
    graphs = revision.graphs.in_order().values_list("graph_id", flat=True) if revision else ()
    return Route(
        deployment_id=row.pk,
        workspace_id=row.workspace_id,
        organization_id=row.workspace.organization_id,
        slug=row.slug,
        name=row.name,
        active_revision_id=row.active_revision_id,
        config=(revision.config if revision else None) or {},
        tracing=row.tracing,
        graph_ids=tuple(graphs),
        limit=(row.request_limit, row.request_limit_seconds) if row.request_limit else None,
        serving=ServingConfig.from_revision(revision.config or {}, revision.facts)
        if revision
        else ServingConfig(),
    )
