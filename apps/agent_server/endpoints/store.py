"""Endpoints of the agent's store. Texts are embedded by the agent's own model."""

from __future__ import annotations

from functools import partial
from typing import Any

from apps.agent_server.endpoints.endpoint import EndpointGroup, Result, json_response
from apps.agent_server.endpoints.graph_calls import embed_query, embed_value
from apps.agent_server.endpoints.serializers import format_timestamp
from apps.agent_server.schemas import responses
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.schemas.store import (
    ItemQuery,
    ItemReference,
    ItemSearch,
    NamespaceSearch,
    NewItem,
)
from apps.agent_server.scope import Scope
from apps.agent_server.services import store
from apps.agent_server.services.store import ItemRow
from apps.agent_server.store import filters
from apps.agent_server.web.http_context import NO_CONTENT, HttpRequestContext, Response
from apps.core import errors
from apps.core.json import Fragment
from apps.core.sync_bridge import in_thread
from apps.organizations.permissions import Permission

endpoints = EndpointGroup("store")


class KeyRequired(errors.BadRequest):
    """Clients expect a different shape of this error."""

    def as_json(self) -> dict[str, Any]:
        return {"error": "Key is required"}


@endpoints.get("/store/items", response=responses.Item | None)
def get_item(context: HttpRequestContext, query: ItemQuery) -> Response:
    """Get an item of the store, or null."""
    if not query.key:
        raise KeyRequired
    namespace = query.namespace.split(".") if query.namespace else []
    reference = ItemReference(namespace=namespace, key=query.key)
    reference.validate_key()
    scope = context.admission.resolve_scope(
        "store", "get", namespace=reference.namespace, key=reference.key
    )
    # The agent's own rules may have rewritten the namespace or the key.
    names = ("namespace", "key")
    rewritten = {name: scope.value.get(name, getattr(reference, name)) for name in names}
    item = store.get(scope, ItemReference.check(rewritten), refresh=query.refresh_ttl)
    return json_response(None if item is None else _item_json(item))


@endpoints.put("/store/items", status=204)
def put_item(context: HttpRequestContext, body: NewItem) -> Result:
    """Create or replace an item of the store."""
    body.validate_key()
    scope, item = context.admission.authorize("store", "put", body)
    item.validate_key()
    if scope.route.serving.store.index is not None:
        return partial(_embed_and_put, scope, item)
    store.put(scope, item)
    return NO_CONTENT


async def _embed_and_put(scope: Scope, item: NewItem, _: HttpRequestContext) -> Response:
    vectors = await embed_value(scope.route, item.value, item.index)
    await in_thread(store.put, scope, item, vectors)
    return NO_CONTENT


@endpoints.delete("/store/items")
def delete_item(context: HttpRequestContext, body: ItemReference) -> Response:
    """Delete an item of the store."""
    body.validate_key()
    scope, reference = context.admission.authorize("store", "delete", body)
    store.delete(scope, reference)
    return NO_CONTENT


@endpoints.post(
    "/store/items/search", permission=Permission.AGENTS_READ, response=responses.FoundItems
)
def search_items(context: HttpRequestContext, body: ItemSearch) -> Result:
    """Search items below a namespace by filter and by meaning."""
    filters.compile_filter(body.filter)  # rejects a bad filter before a model is called
    scope, body = context.admission.authorize("store", "search", body)
    if body.query and scope.route.serving.store.index is not None:
        return partial(_embed_and_search, scope, body)
    return _items_response(store.search(scope, body))


async def _embed_and_search(scope: Scope, body: ItemSearch, _: HttpRequestContext) -> Response:
    vector = await embed_query(scope.route, body.query)
    return _items_response(await in_thread(store.search, scope, body, vector))


@endpoints.post(
    "/store/namespaces", permission=Permission.AGENTS_READ, response=responses.Namespaces
)
def list_namespaces(context: HttpRequestContext, body: NamespaceSearch) -> Response:
    """List the namespaces that contain items."""
    scope, body = context.admission.authorize("store", "list_namespaces", body)
    return json_response({"namespaces": store.list_namespaces(scope, body)})


def _items_response(items: list[ItemRow]) -> Response:
    return json_response({"items": [{**_item_json(item), "score": item.score} for item in items]})


def _item_json(item: ItemRow) -> JSONObject:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": Fragment(item.value.encode()),
        "created_at": format_timestamp(item.created_at),
        "updated_at": format_timestamp(item.updated_at),
    }
