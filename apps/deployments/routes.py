"""Resolve an agent's slug to its deployment and active revision."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings

from apps.core.ttl_cache import TTLCache
from apps.deployments.langgraph_json import sections
from apps.deployments.langgraph_json.sections import Auth, Http, Mcp, Store, Webhooks
from apps.deployments.langgraph_json.server_config import ServerConfig
from apps.deployments.models import Deployment

STUDIO_USER: dict[str, Any] = {
    "identity": "langgraph-studio-user",
    "display_name": "langgraph-studio-user",
    "is_authenticated": True,
    "permissions": ["authenticated"],
    "kind": "StudioUser",
}
"""The user that an agent with custom authentication sees for users of the platform."""

_DEFAULT_HTTP = Http()


@dataclass(frozen=True, slots=True)
class CustomRoute:
    """A route of the project's custom HTTP application."""

    path: str
    """A Starlette path such as `/items/{item_id:int}`; a mount matches everything below it."""
    kind: str
    """`http`, `websocket` or `mount`."""
    methods: frozenset[str]
    """Empty for all methods."""


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """The typed serving configuration; the defaults apply to a revision without any."""

    http: Http = field(default_factory=lambda: _DEFAULT_HTTP)
    auth: Auth | None = None
    store: Store = field(default_factory=Store)
    webhooks: Webhooks = field(default_factory=Webhooks)
    mcp: Mcp = field(default_factory=Mcp)
    server: ServerConfig = field(default_factory=ServerConfig)
    auth_rules: frozenset[str] = frozenset()
    """The scopes of the project's `@auth.on` handlers: `threads.create`, `threads.*`, `*`."""
    custom_routes: tuple[CustomRoute, ...] | None = None
    """None if the application does not list its routes."""
    custom_openapi: dict[str, Any] | None = None
    """`paths` and `components` of the application's own OpenAPI document, if it has one."""

    @classmethod
    def from_revision(cls, config: dict[str, Any], facts: dict[str, Any]) -> ServingConfig:
        """Parse the `config` and `facts` columns of a revision."""
        parsed = sections.parse_sections(config)
        http_facts = facts.get("http") or {}
        routes = http_facts.get("routes")
        return cls(
            http=_DEFAULT_HTTP if parsed.http == _DEFAULT_HTTP else parsed.http,
            auth=parsed.auth,
            store=parsed.store,
            webhooks=parsed.webhooks,
            mcp=parsed.mcp,
            server=ServerConfig.model_validate(facts.get("variables") or {}),
            auth_rules=frozenset((facts.get("auth") or {}).get("rules") or ()),
            custom_openapi=http_facts.get("openapi"),
            custom_routes=None
            if routes is None
            else tuple(
                CustomRoute(str(path), str(kind), frozenset(methods))
                for path, kind, methods in routes
            ),
        )

    @property
    def is_default_http(self) -> bool:
        """Whether the HTTP configuration is the default."""
        return self.http is _DEFAULT_HTTP and self.server.mount_prefix is None

    @property
    def mount_prefix(self) -> str:
        return self.http.mount_prefix or (self.server.mount_prefix or "").rstrip("/")

    def has_auth_rule(self, resource: str, action: str) -> bool:
        """Return whether a handler of the project authorizes this action."""
        scopes = {f"{resource}.{action}", f"{resource}.*", f"*.{action}", "*"}
        return not self.auth_rules.isdisjoint(scopes)


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
    is_stopped: bool = False
    """A stopped deployment keeps its revision and settings and serves nothing."""
    serving: ServingConfig = field(default_factory=ServingConfig, compare=False)
    """The serving configuration of the active revision."""


_cache: TTLCache[str, Route | None] = TTLCache(_CACHE_SECONDS)


def find_route(slug: str) -> Route | None:
    """Return the route of a slug, at most a second old, or None for an unknown slug.

    A route that does not serve is looked up again: the first request after a deployment or a start
    must not be refused.
    """
    if _is_not_serving(_cache.peek(slug)):
        _cache.discard(slug)
    return _cache.get(slug, _load_route)


def _is_not_serving(route: Route | None) -> bool:
    return route is not None and (route.active_revision_id is None or route.is_stopped)


def cached_route(slug: str) -> tuple[bool, Route | None]:
    """Return whether the slug is cached, and its route; never queries the database."""
    route = _cache.peek(slug)
    return slug in _cache and not _is_not_serving(route), route


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
        is_stopped=row.is_stopped,
        serving=ServingConfig.from_revision(revision.config or {}, revision.facts)
        if revision
        else ServingConfig(),
    )


def agent_url(slug: str) -> str:
    """Return the URL of the Agent Server: a subdomain of AGENT_DOMAIN if set, otherwise a path."""
    if settings.AGENT_DOMAIN:
        return f"{urlsplit(settings.API_BASE_URL).scheme}://{slug}.{settings.AGENT_DOMAIN}"
    return f"{settings.API_BASE_URL}/agents/{slug}"


def mcp_url(route: Route) -> str:
    """Return the URL of the agent's MCP server."""
    return f"{agent_url(route.slug)}{route.serving.mount_prefix}/mcp"
