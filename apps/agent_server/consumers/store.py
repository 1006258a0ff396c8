"""The store over HTTP. What has to be embedded waits for the agent's model, so none is a view."""

from __future__ import annotations

from typing import Any

from apps.agent_server.api.serializers import moment
from apps.agent_server.consumers.embeddings import query_vector, vectors_of
from apps.agent_server.consumers.http_request import Consumer, Exchange
from apps.agent_server.schemas.store import ItemPlace, ItemSearch, NamespaceSearch, NewItem
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

    async def handle(self, exchange: Exchange) -> None:
        method = exchange.scope["method"]
        if method == "GET":
            await self._get(exchange)
        elif method == "PUT":
            await self._put(exchange)
        else:
            raw = await exchange.body()
            await in_thread(_delete, exchange, raw)
            await _done(exchange)

    async def _get(self, exchange: Exchange) -> None:
        item = await in_thread(_get, exchange)
        await exchange.respond(dumps(_json(item) if item is not None else None))

    async def _put(self, exchange: Exchange) -> None:
        raw = await exchange.body()
        scope, item = await in_thread(_granted, exchange, raw)
        if scope.route.serving.store.index is not None:
            vectors = await vectors_of(scope.route, item.value, item.index)
            await in_thread(store.put, scope, item, vectors)
        await _done(exchange)


class SearchStore(Consumer):
    """`/store/items/search`: items below a prefix, by filter and by meaning."""

    async def handle(self, exchange: Exchange) -> None:
        raw = await exchange.body()
        scope, body, items = await in_thread(_searched, exchange, raw)
        if items is None:
            vector = await query_vector(scope.route, body.query)
            items = await in_thread(store.search, scope, body, vector)
        await exchange.respond(dumps({"items": [_json(item, scored=True) for item in items]}))


class ListNamespaces(Consumer):
    """`/store/namespaces`: where there is something."""

    async def handle(self, exchange: Exchange) -> None:
        raw = await exchange.body()
        found = await in_thread(_listed, exchange, raw)
        await exchange.respond(dumps({"namespaces": found}))


# For threads: the caller is let in, and what needs no model is done at once.


def _get(exchange: Exchange) -> Item | None:
    admission = exchange.admit(Permission.AGENTS_READ)
    dotted, key, refresh = (
        exchange.query.get(name, [""])[-1] for name in ("namespace", "key", "refresh_ttl")
    )
    if not key:
        raise KeyRequired
    place = ItemPlace.check({"namespace": dotted.split(".") if dotted else [], "key": key})
    place.check_place()
    scope = admission.scope("store", "get", namespace=place.namespace, key=place.key)
    asked = {name: scope.value.get(name, getattr(place, name)) for name in ("namespace", "key")}
    return store.get(
        scope, ItemPlace.check(asked), refresh=query.flag(refresh) if refresh else None
    )


def _granted(exchange: Exchange, raw: bytes) -> tuple[Scope, NewItem]:
    admission = exchange.admit(Permission.AGENTS_RUN)
    body = NewItem.parse(raw)
    body.check_place()
    scope, item = admission.grant("store", "put", body)
    item.check_place()
    if scope.route.serving.store.index is None:
        store.put(scope, item)
    return scope, item


def _delete(exchange: Exchange, raw: bytes) -> None:
    admission = exchange.admit(Permission.AGENTS_RUN)
    body = ItemPlace.parse(raw)
    body.check_place()
    scope, place = admission.grant("store", "delete", body)
    store.delete(scope, place)


def _searched(exchange: Exchange, raw: bytes) -> tuple[Scope, ItemSearch, list[Item] | None]:
    admission = exchange.admit(Permission.AGENTS_READ)
    body = ItemSearch.parse(raw)
    filters.compiled(body.filter)  # what is wrong with it is said before any model is asked
    scope, body = admission.grant("store", "search", body)
    waits = body.query and scope.route.serving.store.index is not None
    return scope, body, None if waits else store.search(scope, body)


def _listed(exchange: Exchange, raw: bytes) -> list[list[str]]:
    admission = exchange.admit(Permission.AGENTS_READ)
    scope, body = admission.grant("store", "list_namespaces", NamespaceSearch.parse(raw))
    return store.list_namespaces(scope, body)


async def _done(exchange: Exchange) -> None:
    await exchange.start(status=204)
    await exchange.finish()


def _json(item: Item, *, scored: bool = False) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "namespace": item.namespace,
        "key": item.key,
        "value": Fragment(item.value.encode()),
        "created_at": moment(item.created_at),
        "updated_at": moment(item.updated_at),
    }
    return {**shape, "score": item.score} if scored else shape
