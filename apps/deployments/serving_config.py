"""How a revision is served, from its `langgraph.json`, its variables and its build facts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apps.deployments.langgraph_json import sections
from apps.deployments.langgraph_json.sections import Auth, Http, Store, Webhooks
from apps.deployments.langgraph_json.server_config import ServerConfig

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
    server: ServerConfig = field(default_factory=ServerConfig)
    auth_rules: frozenset[str] = frozenset()
    """The scopes of the project's `@auth.on` handlers: `threads.create`, `threads.*`, `*`."""
    custom_routes: tuple[CustomRoute, ...] | None = None
    """None if the application does not list its routes."""

    @classmethod
    def from_revision(cls, config: dict[str, Any], facts: dict[str, Any]) -> ServingConfig:
        """Parse the `config` and `facts` columns of a revision."""
        parsed = sections.parse_sections(config)
        routes = (facts.get("http") or {}).get("routes")
        return cls(
            http=_DEFAULT_HTTP if parsed.http == _DEFAULT_HTTP else parsed.http,
            auth=parsed.auth,
            store=parsed.store,
            webhooks=parsed.webhooks,
            server=ServerConfig.model_validate(facts.get("variables") or {}),
            auth_rules=frozenset((facts.get("auth") or {}).get("rules") or ()),
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
