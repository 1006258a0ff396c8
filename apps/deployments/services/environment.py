"""Environment variables of deployments: validation and encryption."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.db import transaction

from apps.core import secrets
from apps.core.json import dumps_text, loads
from apps.deployments import errors
from apps.deployments.models import Deployment, EnvironmentVariable, Revision

# The platform sets these, or they configure services that agents here do not use.
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
# Settings of the deploying client that its env file includes; the agent does not need them.
IGNORED = frozenset({"LANGGRAPH_HOST_API_KEY", "LANGGRAPH_HOST_URL", "LANGSMITH_DEPLOYMENT_NAME"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_MAX_TOTAL_BYTES = 256 * 1024


def validate_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without ignored ones; reject reserved names and invalid values."""
    accepted = {name: value for name, value in variables.items() if name not in IGNORED}
    if reserved := RESERVED & accepted.keys():
        raise errors.ReservedVariables(reserved)
    for name, value in accepted.items():
        if not _NAME.fullmatch(name):
            raise errors.InvalidVariables(f"{name!r} is not a valid variable name.")
        if "\0" in value:
            raise errors.InvalidVariables(f"The value of {name} must not have a NUL character.")
    if sum(len(name) + len(value.encode()) for name, value in accepted.items()) > _MAX_TOTAL_BYTES:
        raise errors.InvalidVariables("The variables must not exceed 256 KiB in total.")
    return accepted


@transaction.atomic
def replace_variables(*, deployment: Deployment, variables: Mapping[str, str]) -> None:
    """Replace all variables of the deployment."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    rows.filter(deployment=deployment).delete()
    EnvironmentVariable.unscoped.bulk_create(
        EnvironmentVariable(
            workspace_id=deployment.workspace_id,
            deployment=deployment,
            name=name,
            value=secrets.encrypt(value),
        )
        for name, value in validate_variables(variables).items()
    )


@dataclass(frozen=True, slots=True)
class VariableChanges:
    """The names of added, changed, removed and unchanged variables, each sorted."""

    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __str__(self) -> str:
        lists = {"Added": self.added, "Changed": self.changed, "Removed": self.removed}
        parts = [f"{verb} {', '.join(names)}." for verb, names in lists.items() if names]
        return " ".join([*parts, f"Unchanged: {len(self.unchanged)}."])


@transaction.atomic
def change_variables(
    *, deployment: Deployment, values: Mapping[str, str], removed: Collection[str]
) -> VariableChanges:
    """Set and remove single variables; a value equal to the stored one is ignored.

    The caller holds the lock of the deployment.
    """
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    stored = {
        name: secrets.decrypt(value)
        for name, value in rows.filter(deployment=deployment).values_list("name", "value")
    }
    kept = {name: value for name, value in stored.items() if name not in removed}
    variables = validate_variables(kept | dict(values))
    changes = VariableChanges(
        added=sorted(variables.keys() - stored.keys()),
        changed=sorted(
            name for name in variables.keys() & stored if variables[name] != stored[name]
        ),
        removed=sorted(stored.keys() - variables.keys()),
        unchanged=sorted(name for name in variables if variables[name] == stored.get(name)),
    )
    if changes:
        replace_variables(deployment=deployment, variables=variables)
    return changes


def variable_names(deployment: Deployment) -> list[str]:
    """Return the sorted names of the deployment's variables."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    return sorted(rows.filter(deployment=deployment).values_list("name", flat=True))


def encrypt_variables(deployment: Deployment) -> bytes:
    """Return the deployment's variables as one encrypted value, to store in a revision."""
    rows = EnvironmentVariable.objects.for_workspace(deployment.workspace_id)
    pairs = rows.filter(deployment=deployment).values_list("name", "value")
    return secrets.encrypt(dumps_text({name: secrets.decrypt(value) for name, value in pairs}))


def revision_variables(revision: Revision) -> dict[str, str]:
    """Return the decrypted variables of the revision."""
    if revision.environment is None:
        return {}
    variables: dict[str, str] = loads(secrets.decrypt(revision.environment))
    return variables
