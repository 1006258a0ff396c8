"""Facts that a build determines about serving its revision: variables, rules, routes, versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from apps.core.json import dumps, loads, storable
from apps.deployments import errors
from apps.deployments.builds.build_context import BuildContext, BuildFailed
from apps.deployments.env_file import missing_example_variables, read_env_file
from apps.deployments.langgraph_json import ConfigError, ProjectConfig, server_config
from apps.deployments.models import Revision
from apps.deployments.services import environment

_ROUTES = TypeAdapter(
    Annotated[
        list[
            tuple[
                Annotated[str, Field(max_length=500)],
                Literal["http", "websocket", "mount"],
                Annotated[list[str], Field(max_length=20)],
            ]
        ],
        Field(max_length=1000),
    ]
)
"""Routes as a host reports them: untrusted input."""
MAX_OPENAPI_BYTES = 256 * 1024
_MAX_NAMED_VARIABLES = 20


class _Components(TypedDict, total=False):
    schemas: dict[str, Any]


class _OpenAPIParts(TypedDict, total=False):
    paths: dict[str, dict[str, Any]]
    components: _Components


_OPENAPI = TypeAdapter(_OpenAPIParts)


def read_server_variables(context: BuildContext, project: ProjectConfig) -> dict[str, Any]:
    """Return the server configuration in the variables; `BuildFailed` names an invalid one."""
    own_variables = environment.revision_variables(context.revision)
    environment_variables = {
        **_env_variables(context, project, own_variables),
        **own_variables,
    }
    try:
        config = server_config.read_server_config(environment_variables)
    except ConfigError as error:
        raise BuildFailed(str(error)) from None
    for warning in server_config.ignored_variable_warnings(environment_variables):
        context.log.write(f"    {warning}", level="WARNING")
    _warn_of_missing_variables(context, project, environment_variables)
    config_json: dict[str, Any] = config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return config_json


def _env_variables(
    context: BuildContext, project: ProjectConfig, own_variables: dict[str, str]
) -> dict[str, str]:
    """Return the variables of `env`; those of the deployment override them."""
    env = project.raw.get("env")
    if isinstance(env, dict):
        return {name: str(value) for name, value in env.items()}
    return read_env_file(context.directory, project.path, project.raw, own_variables)


def _warn_of_missing_variables(
    context: BuildContext, project: ProjectConfig, variables: dict[str, str]
) -> None:
    example = missing_example_variables(context.directory, project.path, project.raw, variables)
    if example is not None:
        path, names = example
        shown = ", ".join(name[:100] for name in names[:_MAX_NAMED_VARIABLES])
        context.log.write(
            f"    {path} lists variables that this deployment does not have: {shown}.",
            level="WARNING",
        )


def project_facts(
    context: BuildContext, project: ProjectConfig, hello: dict[str, Any]
) -> dict[str, Any]:
    """Return the versions, the auth rules and the routes of the custom HTTP application."""
    facts: dict[str, Any] = {
        "versions": {name: str(hello[name]) for name in ("python", "langgraph")}
    }
    if project.sections.auth is not None:
        rules = [str(rule) for rule in hello["auth"]["rules"]]
        facts["auth"] = {"rules": rules}
        context.log.write(f"    auth: rules on {', '.join(rules) or 'nothing'}")
    if project.sections.http.app is not None:
        facts["http"] = _http_facts(context, hello["http"])
    return facts


def _http_facts(context: BuildContext, http: dict[str, Any]) -> dict[str, Any]:
    routes = http.get("routes")
    if http.get("has_middleware"):
        context.log.write(
            "    The middleware of `http.app` applies to its own routes only; the platform serves"
            " the routes of the Agent Server without it.",
            level="WARNING",
        )
    if routes is None:
        context.log.write(
            "    `http.app` does not list its routes: it receives requests that match no route of"
            " the Agent Server, and cannot override one.",
            level="WARNING",
        )
        return {"routes": None}
    try:
        valid_routes = _ROUTES.validate_python(routes)
    except ValidationError as error:
        raise BuildFailed(f"The routes of `http.app` are invalid: {error}") from None
    context.log.write(f"    http: {', '.join(path for path, *_ in valid_routes) or 'no routes'}")
    return {"routes": valid_routes, "openapi": _openapi_facts(context, http.get("openapi"))}


def _openapi_facts(context: BuildContext, document: Any) -> dict[str, Any] | None:
    """Return the paths and schemas of the application's OpenAPI document, an untrusted input."""
    if document is None:
        return None
    try:
        parts = _OPENAPI.validate_python(document)
    except ValidationError:
        context.log.write("    The OpenAPI document of `http.app` is not valid.", level="WARNING")
        return None
    if len(dumps(parts)) > MAX_OPENAPI_BYTES:
        context.log.write(
            f"    The OpenAPI document of `http.app` exceeds {MAX_OPENAPI_BYTES} bytes: its routes"
            " are listed without a description.",
            level="WARNING",
        )
        return None
    return dict(parts)


def save_facts(context: BuildContext, facts: dict[str, Any]) -> None:
    """Store the facts, or raise `LeaseLost`."""
    revisions = Revision.objects.for_workspace(context.revision.workspace_id)
    current = revisions.filter(pk=context.revision.pk, attempt=context.revision.attempt)
    if not current.update(facts=loads(storable(dumps(facts)))):
        raise errors.LeaseLost
