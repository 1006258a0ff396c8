"""The store over HTTP. What has to be embedded waits for the agent's model, so none is a view."""

from __future__ import annotations

from typing import Any

from apps.agent_server.api.serializers import format_timestamp
from apps.agent_server.consumers.embeddings import embed_query, embed_value
from apps.agent_server.consumers.http_request import Consumer, HttpRequestContext
from apps.agent_server.schemas.store import ItemReference, ItemSearch, NamespaceSearch, NewItem
from apps.agent_server.scope import Scope
from apps.agent_server.services import store
from apps.agent_server.services.store import Item
from apps.agent_server.store import filters
from apps.agent_server.web import query
from apps.core import errors
from apps.core.json import Fragment, dumps
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission


class KeyRequired(errors.BadRequest):
    """Clients know this answer in another shape than all the others."""

    def as_json(self) -> dict[str, Any]:
        return {"error": "Key is required"}


class StoreItems(Consumer):
    """`/store/items`: one item, put, got and deleted."""

    methods = ("GET", "PUT", "DELETE")

    async def handle(self, context: HttpRequestContext) -> None:
        method = context.scope["method"]
        if method == "GET":
            await self._get(context)
        elif method == "PUT":
            await self._put(context)
        else:
            raw = await context.body()
            await in_thread(_delete, context, raw)
            await _done(context)

    async def _get(self, context: HttpRequestContext) -> None:
        item = await in_thread(_get, context)
        await context.respond(dumps(_json(item) if item is not None else None))

    async def _put(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        scope, item = await in_thread(_granted, context, raw)
        if scope.route.serving.store.index is not None:
            vectors = await embed_value(scope.route, item.value, item.index)
            await in_thread(store.put, scope, item, vectors)
        await _done(context)


class SearchStore(Consumer):
    """`/store/items/search`: items below a prefix, by filter and by meaning."""

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        scope, body, items = await in_thread(_searched, context, raw)
        if items is None:
            vector = await embed_query(scope.route, body.query)
            items = await in_thread(store.search, scope, body, vector)
        await context.respond(dumps({"items": [_json(item, scored=True) for item in items]}))


class ListNamespaces(Consumer):
    """`/store/namespaces`: where there is something."""

    async def handle(self, context: HttpRequestContext) -> None:
        raw = await context.body()
        found = await in_thread(_listed, context, raw)
        await context.respond(dumps({"namespaces": found}))


# For threads: the caller is let in, and what needs no model is done at once.


def _get(context: HttpRequestContext) -> Item | None:
    admission = context.admit(Permission.AGENTS_READ)
    dotted, key, refresh = (
        context.query.get(name, [""])[-1] for name in ("namespace", "key", "refresh_ttl")
    )
    if not key:
        raise KeyRequired
    place = ItemReference.check({"namespace": dotted.split(".") if dotted else [], "key": key})
    place.validate_key()
    scope = admission.resolve_scope("store", "get", namespace=place.namespace, key=place.key)
    asked = {name: scope.value.get(name, getattr(place, name)) for name in ("namespace", "key")}
    return store.get(
        scope, ItemReference.check(asked), refresh=query.parse_flag(refresh) if refresh else None
    )


def _granted(context: HttpRequestContext, raw: bytes) -> tuple[Scope, NewItem]:
    admission = context.admit(Permission.AGENTS_RUN)
    body = NewItem.parse(raw)
    body.validate_key()
    scope, item = admission.authorize("store", "put", body)
    item.validate_key()
    if scope.route.serving.store.index is None:
        store.put(scope, item)
    return scope, item


def _delete(context: HttpRequestContext, raw: bytes) -> None:
    admission = context.admit(Permission.AGENTS_RUN)
    body = ItemReference.parse(raw)
    body.validate_key()
    scope, place = admission.authorize("store", "delete", body)
    store.delete(scope, place)


def _searched(
    context: HttpRequestContext, raw: bytes
) -> tuple[Scope, ItemSearch, list[Item] | None]:
    admission = context.admit(Permission.AGENTS_READ)
    body = ItemSearch.parse(raw)
    filters.compile_filter(body.filter)  # what is wrong with it is said before any model is asked
    scope, body = admission.authorize("store", "search", body)
    waits = body.query and scope.route.serving.store.index is not None
    return scope, body, None if waits else store.search(scope, body)


def _listed(context: HttpRequestContext, raw: bytes) -> list[list[str]]:
    admission = context.admit(Permission.AGENTS_READ)
    scope, body = admission.authorize("store", "list_namespaces", NamespaceSearch.parse(raw))
    return store.list_namespaces(scope, body)


async def _done(context: HttpRequestContext) -> None:
    await context.start(status=204)
    await context.finish()


def _json(item: Item, *, scored: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "namespace": item.namespace,
        "key": item.key,
        "value": Fragment(item.value.encode()),
        "created_at": format_timestamp(item.created_at),
        "updated_at": format_timestamp(item.updated_at),
    }
    return {**shape, "score": item.score} if scored else shape
