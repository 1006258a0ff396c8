"""From the address of an agent to the revision that serves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from apps.core.ttl_cache import TTLCache
from apps.deployments.models import Deployment
from apps.deployments.serving import Serving

_CACHE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Route:
    """What the web side must know of a deployment to serve it."""

    deployment_id: UUID
    workspace_id: UUID
    organization_id: UUID
    slug: str
    name: str
    active_revision_id: UUID | None
    """None until something was deployed for the first time."""
    config: dict[str, Any]
    """The active revision's `langgraph.json`."""
    tracing: bool
    graph_ids: tuple[str, ...]
    limit: tuple[int, int] | None = None
    """The deployment's own: so many requests in so many seconds."""
    serving: Serving = field(default_factory=Serving, compare=False)
    """How the active revision wants to be served."""


_known: TTLCache[str, Route | None] = TTLCache(_CACHE_SECONDS)


def find(slug: str) -> Route | None:
    """The route of an address; None for one that nobody has. At most a second old."""
    return _known.get(slug, _look_up)


def known(slug: str) -> tuple[bool, Route | None]:
    """Whether `find` would answer at once, and what; never asks the database."""
    return slug in _known, _known.peek(slug)


def forget() -> None:
    """Drop what is cached in this process."""
    _known.clear()


def _look_up(slug: str) -> Route | None:
    deployments = Deployment.objects.across_workspaces(reason="an address names no workspace")
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
        serving=Serving.of(revision.config or {}, revision.facts) if revision else Serving(),
    )
