"""How a revision wants to be served: its `langgraph.json`, its variables, what its code offers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apps.deployments.langgraph_json import sections
from apps.deployments.langgraph_json.sections import Auth, Http, Store, Webhooks
from apps.deployments.langgraph_json.variables import Facts

STUDIO_USER: dict[str, Any] = {
    "identity": "langgraph-studio-user",
    "display_name": "langgraph-studio-user",
    "is_authenticated": True,
    "permissions": ["authenticated"],
    "kind": "StudioUser",
}
"""Somebody of the platform, to an agent with authentication of its own."""

_PLAIN = Http()


@dataclass(frozen=True, slots=True)
class OwnRoute:
    """A route of the project's own HTTP application."""

    path: str
    """As Starlette writes it: `/items/{item_id:int}`; with a mount, everything below it."""
    kind: str
    """`http`, `websocket` or `mount`."""
    methods: frozenset[str]
    """Empty: all."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The typed whole; the defaults are those of a revision that says nothing."""

    http: Http = field(default_factory=lambda: _PLAIN)
    auth: Auth | None = None
    store: Store = field(default_factory=Store)
    webhooks: Webhooks = field(default_factory=Webhooks)
    facts: Facts = field(default_factory=Facts)
    rules: frozenset[str] = frozenset()
    """Where `@auth.on` has something to say: `threads.create`, `threads.*`, `*`."""
    own_routes: tuple[OwnRoute, ...] | None = None
    """None: the application does not say what its routes are."""

    @classmethod
    def of(cls, config: dict[str, Any], facts: dict[str, Any]) -> Serving:
        """What the columns of a revision say."""
        read = sections.read(config)
        routes = (facts.get("http") or {}).get("routes")
        return cls(
            http=_PLAIN if read.http == _PLAIN else read.http,
            auth=read.auth,
            store=read.store,
            webhooks=read.webhooks,
            facts=Facts.model_validate(facts.get("variables") or {}),
            rules=frozenset((facts.get("auth") or {}).get("rules") or ()),
            own_routes=None
            if routes is None
            else tuple(
                OwnRoute(str(path), str(kind), frozenset(methods)) for path, kind, methods in routes
            ),
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing about HTTP is out of the ordinary."""
        return self.http is _PLAIN and self.facts.mount_prefix is None

    @property
    def mount_prefix(self) -> str:
        return self.http.mount_prefix or (self.facts.mount_prefix or "").rstrip("/")

    def rules_on(self, resource: str, action: str) -> bool:
        """Whether a handler of the project decides about this."""
        places = {f"{resource}.{action}", f"{resource}.*", f"*.{action}", "*"}
        return not self.rules.isdisjoint(places)
