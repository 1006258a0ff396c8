"""Environment variables that configure the server of an agent rather than the agent.

The build reads them from the deployment's variables and from `env` of `langgraph.json`, and stores
them in the facts of the revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from apps.deployments.langgraph_json.keys import ConfigError

IGNORED_VARIABLES = {
    "N_JOBS_PER_WORKER": "all deployments share the capacity of a worker (AGENT_RUNS_PER_WORKER)",
    "RESUMABLE_STREAM_TTL_SECONDS": "the platform's setting of that name applies to all",
    "BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS": "runs move to another worker between steps",
    "LOG_JSON": "the platform stores each line as it is printed",
    "REDIS_URI": "agents cannot access the platform's data services",
    "POSTGRES_URI": "agents cannot access the platform's data services",
}


class ServerConfig(BaseModel):
    """The server settings of a revision; None for the platform's default."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    run_seconds: float | None = Field(
        None, alias="BG_JOB_TIMEOUT_SECS", gt=0, le=86_400, allow_inf_nan=False
    )
    """The maximum duration of a run."""
    isolated_loops: bool | None = Field(None, alias="BG_JOB_ISOLATED_LOOPS")
    """Whether each run has an event loop of its own; the graph host reads the variable itself."""
    log_level: (
        Annotated[
            Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(str.upper)
        ]
        | None
    ) = Field(None, alias="LOG_LEVEL")
    """The log level of the agent."""
    mount_prefix: str | None = Field(None, alias="MOUNT_PREFIX", pattern=r"^(/[\w.~-]+)*/?$")


def read_server_config(variables: Mapping[str, str]) -> ServerConfig:
    """Return the server settings in the variables; `ConfigError` names the first invalid one."""
    settings = {
        field.alias: variables[field.alias]
        for field in ServerConfig.model_fields.values()
        if field.alias and variables.get(field.alias)
    }
    try:
        return ServerConfig.model_validate(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = first["loc"][0]
        raise ConfigError(
            f"The variable {name} is {settings[str(name)]!r}: {first['msg']}."
        ) from None


def ignored_variable_warnings(variables: Mapping[str, Any]) -> list[str]:
    """Return a warning for each ignored variable that is set."""
    return [
        f"The variable {name} has no effect here: {reason}."
        for name, reason in IGNORED_VARIABLES.items()
        if variables.get(name)
    ]
