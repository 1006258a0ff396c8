"""The variables of a deployment: which names are taken, and how values are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.db import transaction

from apps.core import secrets
from apps.core.json import dumps_text, loads
from apps.deployments import errors
from apps.deployments.models import Deployment, EnvironmentVariable, Revision

# The platform sets these, or they configure a server that an agent here does not have.
RESERVED = frozenset(
    (
        *("LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING_V2", "LANGCHAIN_ENDPOINT"),
        *("LANGCHAIN_PROJECT", "LANGSMITH_PROJECT", "LANGCHAIN_API_KEY"),
        *("LANGSMITH_LANGGRAPH_GIT_REPO", "LANGGRAPH_GIT_REPO_PATH"),
        *("LANGSMITH_LANGGRAPH_GIT_REF", "LANGSMITH_LANGGRAPH_GIT_REF_SHA"),
        *("LANGSMITH_CONTROL_PLANE_API_KEY", "LANGGRAPH_CLOUD_LICENSE_KEY"),
        *("POSTGRES_URI", "POSTGRES_PASSWORD", "DATABASE_URI", "REDIS_URI"),
        *("LANGGRAPH_AUTH_TYPE", "LANGSMITH_AUTH_ENDPOINT", "LANGSMITH_AUTH_VERIFY_TENANT_ID"),
        *("LANGSMITH_TENANT_ID", "LANGSMITH_HOST_PROJECT_ID", "LANGSMITH_HOST_PROJECT_NAME"),
        *("LANGSMITH_HOST_REVISION_ID", "LOG_JSON", "LOG_DICT_TRACEBACKS"),
        *("LANGCHAIN_CALLBACKS_BACKGROUND", "DD_TRACE_PSYCOPG_ENABLED"),
        "DD_TRACE_REDIS_ENABLED",
    )
)
# Keys and addresses of the deploying client that its env file brings along: not the agent's.
UNWANTED = frozenset({"LANGGRAPH_HOST_API_KEY", "LANGGRAPH_HOST_URL", "LANGSMITH_DEPLOYMENT_NAME"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_MOST_BYTES = 256 * 1024


def checked(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that an agent may have; refuses reserved names and what no process can hold."""
    wanted = {name: value for name, value in variables.items() if name not in UNWANTED}
    if taken := RESERVED & wanted.keys():
        raise errors.ReservedVariables(taken)
    for name, value in wanted.items():
        if not _NAME.fullmatch(name):
            raise errors.UnusableVariables(f"{name!r} cannot be the name of a variable.")
        if "\0" in value:
            raise errors.UnusableVariables(f"The value of {name} has a NUL character.")
    if sum(len(name) + len(value.encode()) for name, value in wanted.items()) > _MOST_BYTES:
        raise errors.UnusableVariables("All variables together are larger than 256 KiB.")
    return wanted


@transaction.atomic
def replace_variables(*, deployment: Deployment, variables: Mapping[str, str]) -> None:
    """The deployment has exactly these variables from now on."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    rows.filter(deployment=deployment).delete()
    EnvironmentVariable.unscoped.bulk_create(
        EnvironmentVariable(
            workspace_id=deployment.workspace_id,
            deployment=deployment,
            name=name,
            value=secrets.encrypt(value),
        )
        for name, value in checked(variables).items()
    )


def names_of(deployment: Deployment) -> list[str]:
    """The names of the deployment's variables, for those who may not see values."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    return sorted(rows.filter(deployment=deployment).values_list("name", flat=True))


def sealed(deployment: Deployment) -> bytes:
    """The deployment's variables as one encrypted whole, for a revision to keep."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    pairs = rows.filter(deployment=deployment).values_list("name", "value")
    return secrets.encrypt(dumps_text({name: secrets.decrypt(value) for name, value in pairs}))


def of_revision(revision: Revision) -> dict[str, str]:
    """The variables that the revision was made with, in the clear."""
    if revision.environment is None:
        return {}
    found: dict[str, str] = loads(secrets.decrypt(revision.environment))
    return found
