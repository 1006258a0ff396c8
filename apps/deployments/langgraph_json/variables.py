"""Variables that configure the server an agent runs on, rather than the agent itself.

They are read when a revision is built, from the deployment's variables and from `env` of its
`langgraph.json`, and travel as typed facts of the revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from apps.deployments.langgraph_json.errors import ConfigError

WITHOUT_EFFECT = {
    "N_JOBS_PER_WORKER": "a worker's room is shared by all deployments (AGENT_RUNS_PER_WORKER)",
    "RESUMABLE_STREAM_TTL_SECONDS": "the platform's setting of that name holds for all",
    "BG_JOB_ISOLATED_LOOPS": "a graph host has one event loop, and synchronous nodes have threads",
    "BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS": "runs move to another worker between their steps",
    "LOG_JSON": "the platform stores each line as it is printed",
    "REDIS_URI": "agents reach no data service of the platform",
    "POSTGRES_URI": "agents reach no data service of the platform",
}


class Facts(BaseModel):
    """What the variables of a revision say about how it is served; None: the platform's own."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    run_seconds: float | None = Field(
        None, alias="BG_JOB_TIMEOUT_SECS", gt=0, le=86_400, allow_inf_nan=False
    )
    """The longest run."""
    log_level: (
        Annotated[
            Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(str.upper)
        ]
        | None
    ) = Field(None, alias="LOG_LEVEL")
    """What the agent's own logging lets through."""
    mount_prefix: str | None = Field(None, alias="MOUNT_PREFIX", pattern=r"^(/[\w.~-]+)*/?$")


def read(variables: Mapping[str, str]) -> Facts:
    """The facts among the variables; `ConfigError` names the first that makes no sense."""
    given = {
        field.alias: variables[field.alias]
        for field in Facts.model_fields.values()
        if field.alias and variables.get(field.alias)
    }
    try:
        return Facts.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = first["loc"][0]
        raise ConfigError(f"The variable {name} is {given[str(name)]!r}: {first['msg']}.") from None


def notes(variables: Mapping[str, Any]) -> list[str]:
    """What the author should know of variables that change nothing."""
    return [
        f"The variable {name} has no effect here: {why}."
        for name, why in WITHOUT_EFFECT.items()
        if variables.get(name)
    ]
