"""The OpenAPI document of an Agent Server."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.conf import settings
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from apps.agent_server.openapi.answers import HIDDEN, Told, told
from apps.agent_server.openapi.handlers import Handler, handlers
from apps.agent_server.openapi.shapes import Failure
from apps.core.json import dumps

JSONObject = dict[str, Any]
TEMPLATE = "#/components/schemas/{model}"
JSON = "application/json"
_ABOUT = """\
Assistants, threads, runs, crons and the store of one deployed agent. Send a key as `X-Api-Key`.

Every failure is `{"detail": ..., "code": ..., "errors": [...]}`. Lists in the query may be given as
repeated keys or as one JSON array. Unknown fields of a body are ignored; null counts as absent.
"""


def document(slug: str) -> bytes:
    """The document as JSON; everything but the server's address is the same for every agent."""
    return _made_once().replace(_HERE, slug.encode())


@cache
def _made_once() -> bytes:
    return dumps(_document())


_HERE = b"agent-of-this-address"


def described() -> list[Handler]:
    """Everything that the routes answer and clients may know of."""
    # The routes name the views, and a view shows the document.
    from apps.agent_server.api import urls  # noqa: PLC0415
    from apps.agent_server.routing import http_routes  # noqa: PLC0415

    found = handlers(urls.urlpatterns, http_routes)
    return sorted(
        (handler for handler in found if handler.key not in HIDDEN),
        key=lambda handler: (_TAGS.index(_tag(handler)), handler.path, handler.method),
    )


def _document() -> JSONObject:
    models = _Models()
    paths: dict[str, JSONObject] = {}
    for handler in described():
        paths.setdefault(handler.path, {})[handler.method] = _operation(handler, models)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Agent Server",
            "version": settings.SPECTACULAR_SETTINGS["VERSION"],
            "description": _ABOUT,
        },
        "servers": [{"url": f"/agents/{_HERE.decode()}"}],
        "tags": [{"name": name} for name in _TAGS],
        "paths": paths,
        "components": {
            "schemas": models.schemas(),
            "securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"key": []}, {"bearer": []}],
    }


class _Models:
    """The models that the operations name, each described once."""

    def __init__(self) -> None:
        self._schemas: dict[str, JSONObject] = {}

    def of(self, kind: Any, mode: JsonSchemaMode) -> JSONObject:
        made = TypeAdapter(kind).json_schema(
            ref_template=TEMPLATE, mode=mode, schema_generator=_Plain
        )
        self._schemas |= made.pop("$defs", {})
        title = made.get("title")
        if made.get("type") == "object" and "properties" in made and title:
            self._schemas[title] = made
            return {"$ref": TEMPLATE.format(model=title)}
        return made

    def schemas(self) -> dict[str, JSONObject]:
        return dict(sorted(self._schemas.items()))


class _Plain(GenerateJsonSchema):
    """Leaves out defaults that are no JSON."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}


def _operation(handler: Handler, models: _Models) -> JSONObject:
    extra = told(handler)
    summary, description = handler.words
    operation: JSONObject = {
        "operationId": _name(handler),
        "tags": [_tag(handler)],
        "summary": extra.summary or summary,
        **({"description": description} if description and not extra.summary else {}),
        "parameters": [*_path_parameters(handler), *_query_parameters(handler, extra)],
        "responses": {
            str(extra.status): _answer(extra, models),
            **{str(status): {"description": why} for status, why in extra.also.items()},
            "default": {
                "description": "A failure.",
                "content": {JSON: {"schema": models.of(Failure, "serialization")}},
            },
        },
    }
    if body := _body(handler, extra, models):
        operation["requestBody"] = body
    if handler.is_open:
        operation["security"] = []
    return operation


def _name(handler: Handler) -> str:
    """For clients that make functions of it: `post_runs_crons_search`."""
    return "_".join([handler.method, *re.findall(r"\w+", handler.path.replace(".", "_"))])


def _body(handler: Handler, extra: Told, models: _Models) -> JSONObject | None:
    bodies = handler.bodies if extra.bodies is None else extra.bodies
    if not bodies:
        return None
    found = [models.of(body, "validation") for body in bodies]
    schema = found[0] if len(found) == 1 else {"anyOf": found}
    if handler.path == "/runs/batch":
        schema = {"type": "array", "items": schema, "minItems": 1}
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _answer(extra: Told, models: _Models) -> JSONObject:
    if not extra.has_body:
        return {"description": "Done."}
    schema = {} if extra.answer is None else models.of(extra.answer, "serialization")
    return {"description": "Done.", "content": {extra.media: {"schema": schema}}}


def _path_parameters(handler: Handler) -> list[JSONObject]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(handler, name)}
        for name in handler.parameters
    ]


def _path_schema(handler: Handler, name: str) -> JSONObject:
    takes_graphs = name == "assistant_id" and handler.path.count("/") > 2
    if name == "namespace" or (takes_graphs and handler.method == "get"):
        return {"type": "string"}
    return {"type": "string", "format": "uuid"}


def _query_parameters(handler: Handler, extra: Told) -> list[JSONObject]:
    schemas = {name: _QUERY[kind] for name, kind in handler.query.items()} | dict(extra.query)
    return [{"name": name, "in": "query", "schema": schemas[name]} for name in sorted(schemas)]


_QUERY: dict[str, JSONObject] = {
    "boolean": {"type": "boolean", "default": False},
    "integer": {"type": "integer"},
    "array": {"type": "array", "items": {"type": "string"}},
    "string": {"type": "string"},
}
_TAGS = ["assistants", "threads", "runs", "crons", "store", "system"]


def _tag(handler: Handler) -> str:
    parts = handler.path.split("/")
    if "crons" in parts:
        return "crons"
    if "runs" in parts:
        return "runs"
    return parts[1] if parts[1] in _TAGS else "system"
