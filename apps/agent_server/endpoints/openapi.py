"""The OpenAPI document of an Agent Server, made from the declarations of its endpoints."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterable
from typing import Any, get_args, get_origin

from django.conf import settings
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode

from apps.agent_server.endpoints.endpoint import JSON, Endpoint
from apps.agent_server.schemas.base import JSONObject
from apps.agent_server.schemas.responses import Failure
from apps.agent_server.web.custom_paths import is_disabled
from apps.core.json import dumps, loads
from apps.deployments import routes
from apps.deployments.routes import ServingConfig

TEMPLATE = "#/components/schemas/{model}"
TAGS = ["assistants", "threads", "runs", "crons", "store", "a2a", "mcp", "system"]
_CUSTOM_TAG = "application"
# Starlette's `{name:int}`.
_CONVERTER = re.compile(r"{(\w+)(?::\w+)?}")
_SLUG_PLACEHOLDER = b"agent-of-this-address"
_DESCRIPTION = """\
Assistants, threads, runs, crons and the store of one deployed agent, and its endpoints for A2A
and MCP clients. Send a key as `X-Api-Key`.

Every error is `{"detail": ..., "code": ..., "errors": [...]}`. Lists in the query may be given as
repeated keys or as one JSON array. Unknown fields of a body are ignored; null counts as absent.
"""


class OpenAPIDocument:
    """The document of all agents, which differ in the server's address and their settings."""

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._endpoints = endpoints
        self._json: bytes | None = None

    def for_agent(self, slug: str) -> bytes:
        """The document as JSON, without disabled routes and with the agent's own schemes."""
        if self._json is None:
            self._json = dumps(describe(self._endpoints))
        document = self._json.replace(_SLUG_PLACEHOLDER, slug.encode())
        route = routes.find_route(slug)
        if route is None or (route.serving.is_default_http and route.serving.auth is None):
            return document
        return dumps(_customize(loads(document), route.serving))


def _customize(document: JSONObject, serving: ServingConfig) -> JSONObject:
    document["paths"] = {
        path: operations
        for path, operations in document["paths"].items()
        if not is_disabled(serving.http, path)
    }
    _add_custom_routes(document, serving)
    custom = (serving.auth.openapi if serving.auth is not None else None) or {}
    # SDK users write the keys of OpenAPI at the top level or within `components`.
    schemes = custom.get("securitySchemes") or (custom.get("components") or {}).get(
        "securitySchemes"
    )
    if isinstance(schemes, dict):
        document["components"]["securitySchemes"] = schemes
    if isinstance(custom.get("security"), list):
        document["security"] = custom["security"]
    return document


def _add_custom_routes(document: JSONObject, serving: ServingConfig) -> None:
    """Add the routes of `http.app`, which take precedence, with its own description of them."""
    described = _describe_custom_routes(serving, document["components"]["schemas"])
    if not described["paths"]:
        return
    document["tags"] = [*document["tags"], {"name": _CUSTOM_TAG}]
    document["components"]["schemas"] |= described["schemas"]
    for path, operations in described["paths"].items():
        document["paths"][path] = document["paths"].get(path, {}) | operations


def _describe_custom_routes(serving: ServingConfig, own_schemas: JSONObject) -> JSONObject:
    """Return `paths` and `schemas`; a schema with the name of another one is renamed."""
    custom = serving.custom_openapi or {}
    schemas = (custom.get("components") or {}).get("schemas") or {}
    text = dumps({"paths": custom.get("paths") or {}, "schemas": schemas}).decode()
    renamed = {name: f"Application{name}" for name in schemas.keys() & own_schemas.keys()}
    for name, new_name in renamed.items():
        text = text.replace(
            f'"{TEMPLATE.format(model=name)}"', f'"{TEMPLATE.format(model=new_name)}"'
        )
    described: JSONObject = loads(text.encode())
    for name, new_name in renamed.items():
        described["schemas"][new_name] = described["schemas"].pop(name)
    for operations in described["paths"].values():
        for operation in operations.values():
            if isinstance(operation, dict):
                operation["tags"] = [_CUSTOM_TAG]
    for route in serving.custom_routes or ():
        path = _CONVERTER.sub("{\\1}", route.path)
        if route.kind == "http" and path not in described["paths"]:
            described["paths"][path] = _undescribed_operations(path, route.methods)
    return described


def _undescribed_operations(path: str, methods: Collection[str]) -> JSONObject:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    operation = {
        "tags": [_CUSTOM_TAG],
        "summary": "A route of the agent's application.",
        "parameters": parameters,
        "responses": {"default": {"description": "The response of the application."}},
    }
    names = sorted(method.lower() for method in methods if method != "HEAD") or ["get"]
    return dict.fromkeys(names, operation)


def describe(endpoints: Iterable[Endpoint]) -> JSONObject:
    models = _Models()
    paths: dict[str, JSONObject] = {}
    for endpoint in sorted(endpoints, key=lambda e: (TAGS.index(e.tag), e.path, e.method)):
        operation = _operation(endpoint, models)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": _SLUG_PLACEHOLDER.decode(),
            "version": settings.SPECTACULAR_SETTINGS["VERSION"],
            "description": _DESCRIPTION,
        },
        "servers": [{"url": f"/agents/{_SLUG_PLACEHOLDER.decode()}"}],
        "tags": [{"name": name} for name in TAGS],
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
    """The JSON Schemas of the models that operations use, each included once."""

    def __init__(self) -> None:
        self._schemas: dict[str, JSONObject] = {}

    def schema(self, model: Any, mode: JsonSchemaMode) -> JSONObject:
        schema = TypeAdapter(model).json_schema(
            ref_template=TEMPLATE, mode=mode, schema_generator=_SchemaGenerator
        )
        self._schemas |= schema.pop("$defs", {})
        title = schema.get("title")
        if schema.get("type") == "object" and "properties" in schema and title:
            self._schemas[title] = schema
            return {"$ref": TEMPLATE.format(model=title)}
        return schema

    def schemas(self) -> dict[str, JSONObject]:
        return dict(sorted(self._schemas.items()))


class _SchemaGenerator(GenerateJsonSchema):
    """Omits defaults that JSON cannot express."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}


def _operation(endpoint: Endpoint, models: _Models) -> JSONObject:
    summary, _, description = (inspect.getdoc(endpoint.function) or "").partition("\n\n")
    operation: JSONObject = {
        # A name for generated clients: `post_runs_crons_search`.
        "operationId": "_".join(re.findall(r"[^\W_]+(?:_[^\W_]+)*", _operation_path(endpoint))),
        "tags": [endpoint.tag],
        "summary": " ".join(summary.split()),
        **({"description": description} if description else {}),
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": {
            str(endpoint.status): _response(endpoint, models),
            **{
                str(status): {"description": reason}
                for status, reason in endpoint.other_statuses.items()
            },
            "default": {
                "description": "An error.",
                "content": {JSON: {"schema": models.schema(Failure, "serialization")}},
            },
        },
    }
    if endpoint.body is not None:
        schema = _body_schema(endpoint.body, models)
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    if endpoint.is_public:
        operation["security"] = []
    return operation


def _operation_path(endpoint: Endpoint) -> str:
    return f"{endpoint.method.lower()} {endpoint.path.replace('.', '_')}"


def _body_schema(body: Any, models: _Models) -> JSONObject:
    if get_origin(body) is list:
        [element] = get_args(body)
        return {"type": "array", "items": models.schema(element, "validation"), "minItems": 1}
    return models.schema(body, "validation")


def _response(endpoint: Endpoint, models: _Models) -> JSONObject:
    if endpoint.response is None:
        return {"description": "Success."}
    schema = {} if endpoint.response is Any else models.schema(endpoint.response, "serialization")
    return {"description": "Success.", "content": {endpoint.media: {"schema": schema}}}


def _path_parameters(endpoint: Endpoint) -> list[JSONObject]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"}
            if name in endpoint.text_parameters and name != "checkpoint_id"
            else {"type": "string", "format": "uuid"},
        }
        for name in endpoint.parameters
    ]


def _query_parameters(endpoint: Endpoint) -> list[JSONObject]:
    if endpoint.query is None:
        return []
    properties = endpoint.query.model_json_schema()["properties"]
    return [
        {"name": name, "in": "query", "schema": _parameter_schema(properties[name])}
        for name in sorted(properties)
    ]


def _parameter_schema(schema: JSONObject) -> JSONObject:
    """The schema of a parameter: a query cannot hold null."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if "anyOf" in schema and len(options) == 1:
        schema = {**options[0], **{n: v for n, v in schema.items() if n != "anyOf"}}
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}
