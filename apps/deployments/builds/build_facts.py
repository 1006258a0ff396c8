"""What a build finds out about how its revision wants to be served: the revision's facts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from apps.core.json import dumps, loads, storable
from apps.deployments import errors
from apps.deployments.build_dirs import Unreadable
from apps.deployments.builds.build_context import Work
from apps.deployments.builds.errors import BuildFailed
from apps.deployments.langgraph_json import ConfigError, Project, variables
from apps.deployments.models import Revision
from apps.deployments.services import environment
from apps.graph_host.project import variables_in

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
"""What a host may say of its routes: its word is a stranger's."""


def of_variables(work: Work, project: Project) -> dict[str, Any]:
    """What the variables say about the server; `BuildFailed` names one that makes no sense."""
    given = {**_of_file(work, project), **environment.of_revision(work.revision)}
    try:
        facts = variables.read(given)
    except ConfigError as error:
        raise BuildFailed(str(error)) from None
    for note in variables.notes(given):
        work.log.write(f"    {note}", level="WARNING")
    told: dict[str, Any] = facts.model_dump(mode="json", by_alias=True, exclude_none=True)
    return told


def _of_file(work: Work, project: Project) -> dict[str, str]:
    """The variables of `env`; the deployment's own win over them."""
    env = project.raw.get("env")
    if isinstance(env, dict):
        return {name: str(value) for name, value in env.items()}
    if not env:
        return {}
    try:
        return variables_in(work.place.read(project.place(env)))
    except Unreadable:
        return {}


def offered(work: Work, project: Project, greeting: dict[str, Any]) -> dict[str, Any]:
    """Versions, and what the project's own authentication and HTTP application offer."""
    facts: dict[str, Any] = {
        "versions": {name: str(greeting[name]) for name in ("python", "langgraph")}
    }
    if project.sections.auth is not None:
        rules = [str(rule) for rule in greeting["auth"]["rules"]]
        facts["auth"] = {"rules": rules}
        work.log.write(f"    auth: rules on {', '.join(rules) or 'nothing'}")
    if project.sections.http.app is not None:
        facts["http"] = _http(work, greeting["http"])
    return facts


def _http(work: Work, told: dict[str, Any]) -> dict[str, Any]:
    routes = told.get("routes")
    if told.get("has_middleware"):
        work.log.write(
            "    The middleware of `http.app` is around its own routes; the routes of the Agent"
            " Server are answered by the platform, without it.",
            level="WARNING",
        )
    if routes is None:
        work.log.write(
            "    `http.app` does not list its routes: it gets what the Agent Server has no route"
            " for, and shadows nothing.",
            level="WARNING",
        )
        return {"routes": None}
    try:
        known = _ROUTES.validate_python(routes)
    except ValidationError as error:
        raise BuildFailed(f"The routes of `http.app` make no sense: {error}") from None
    work.log.write(f"    http: {', '.join(path for path, *_ in known) or 'no routes'}")
    return {"routes": known}


def keep(work: Work, facts: dict[str, Any]) -> None:
    """Write the facts down, while the attempt is still ours."""
    revisions = Revision.objects.for_workspace(work.revision.workspace_id)
    mine = revisions.filter(pk=work.revision.pk, attempt=work.revision.attempt)
    if not mine.update(facts=loads(storable(dumps(facts)))):
        raise errors.LeaseLost
