"""Create, update and delete deployments."""

from __future__ import annotations

import re
import secrets as random_secrets
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.api_keys import services as api_keys
from apps.audit.actions import Action
from apps.core import errors as core_errors
from apps.core import secrets
from apps.deployments import build_dirs, dispatch, errors, git
from apps.deployments.models import Deployment, Revision, Source
from apps.deployments.services import audit, environment, progress, quotas, revisions
from apps.deployments.services.environment import VariableChanges
from apps.deployments.statuses import DeploymentStatus, RevisionStatus
from apps.organizations.models import User, Workspace
from apps.tracing import services as tracing
from apps.tracing.models import Project

DEPLOYMENT_TYPES = frozenset(
    {"dev_free", "dev", "prod", "dev_zero", "dev_free_zero", "serverless", "dedicated"}
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")

MAX_SLUG_LENGTH = 56
"""With the random suffix, a slug still fits a DNS label of 63 characters."""


@transaction.atomic
def create_deployment(
    *,
    workspace: Workspace,
    name: str,
    repo_url: str,
    branch: str = "",
    config_path: str = "langgraph.json",
    variables: Mapping[str, str] | None = None,
    created_by: User | None = None,
    **options: Any,
) -> Deployment:
    """Create a deployment with its slug, ingest-only key, tracing project and first revision.

    All or nothing. Raises `NameTaken` for a name that the workspace already uses, and
    `QuotaReached` beyond the quotas of the organization.
    """
    if not _NAME.fullmatch(name):
        raise core_errors.Invalid(
            "The name must have 1 to 63 letters, digits, dashes and underscores, and start and end"
            " with a letter or digit."
        )
    quotas.check_deployment_quota(workspace)
    key, secret = api_keys.issue_key(
        organization=workspace.organization,
        workspace=workspace,
        name=f"Traces of {name}"[:100],
        scopes=["ingest"],
        created_by=created_by,
    )
    deployment = _with_free_slug(
        Deployment(
            workspace=workspace,
            name=name,
            source=Source.GIT,
            repo_url=git.normalize_address(repo_url),
            branch=git.normalize_ref(branch),
            config_path=normalize_config_path(config_path),
            ingest_key=key,
            ingest_secret=secrets.encrypt(secret),
            created_by=created_by,
            **options,
        )
    )
    tracing.ensure_project(workspace_id=workspace.pk, name=name)
    audit.record(
        Action.DEPLOYMENT_CREATED, deployment, after=audit.snapshot(deployment, variables or {})
    )
    environment.replace_variables(deployment=deployment, variables=variables or {})
    revisions.create_revision(deployment=deployment, created_by=created_by)
    return deployment


def _with_free_slug(deployment: Deployment) -> Deployment:
    for slug in slug_candidates(deployment.name):
        deployment.slug = slug
        try:
            # The unique constraints decide, since a prior read could be outdated.
            with transaction.atomic():
                deployment.save(force_insert=True)
        except IntegrityError as error:
            if "deployment_name_once" in str(error):
                raise errors.NameTaken(deployment.name) from None
        else:
            return deployment
    raise AssertionError("slug_candidates never ends")


def slug_candidates(name: str) -> Iterator[str]:
    """Yield slugs for a name: the plain name first, then the name with random suffixes.

    A suffix derived from the workspace or name would reveal that another tenant has the plain name.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_SLUG_LENGTH].rstrip("-")
    base = slug or "agent"
    yield base
    while True:
        yield f"{base}-{random_secrets.token_hex(3)}"


@transaction.atomic
def update_deployment(
    *,
    deployment: Deployment,
    changes: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
    removed_variables: Collection[str] | None = None,
    new_revision: bool = False,
    changed_by: User | None = None,
) -> Revision | None:
    """Change fields of the deployment and return the revision that this creates, if any.

    A change of branch, config path, resource spec or variables creates a revision; other changes
    do so only with `new_revision`. Non-empty `variables` replace all existing ones; with
    `removed_variables`, which may be empty, they are set singly and the others stay.
    """
    deployments = Deployment.objects.for_workspace(deployment.workspace_id).present()
    row = deployments.select_for_update(no_key=True).get(pk=deployment.pk)
    before = audit.snapshot(row)
    checks = {
        "repo_url": git.normalize_address,
        "branch": git.normalize_ref,
        "config_path": normalize_config_path,
    }
    for name, value in changes.items():
        setattr(row, name, checks[name](value) if name in checks else value)
    row.save(update_fields=[*changes, "updated_at"])
    if changes:
        audit.record(Action.DEPLOYMENT_UPDATED, row, before, audit.snapshot(row))
    if variables or removed_variables:
        _update_variables(row, variables or {}, removed_variables)
    if not (new_revision or variables or removed_variables or changes.keys() & _FIELDS_OF_A_BUILD):
        return None
    return revisions.create_revision(deployment=row, created_by=changed_by)


def _update_variables(
    deployment: Deployment, variables: Mapping[str, str], removed: Collection[str] | None
) -> None:
    before = {"names": environment.variable_names(deployment)}
    if removed is None:
        environment.replace_variables(deployment=deployment, variables=variables)
    else:
        environment.change_variables(deployment=deployment, values=variables, removed=removed)
    after = {"names": environment.variable_names(deployment)}
    audit.record(Action.DEPLOYMENT_SECRETS_CHANGED, deployment, before, after)


@transaction.atomic
def change_variables(
    *,
    deployment: Deployment,
    values: Mapping[str, str],
    removed: Collection[str],
    changed_by: User | None = None,
) -> tuple[VariableChanges, Revision | None]:
    """Set and remove single variables; return the changes and the revision with them, if any."""
    deployments = Deployment.objects.for_workspace(deployment.workspace_id).present()
    row = deployments.select_for_update(no_key=True).get(pk=deployment.pk)
    names = environment.variable_names(row)
    changes = environment.change_variables(deployment=row, values=values, removed=removed)
    if not changes:
        return changes, None
    audit.record(
        Action.DEPLOYMENT_SECRETS_CHANGED,
        row,
        {"names": names},
        {"names": environment.variable_names(row)},
    )
    return changes, revisions.create_revision(deployment=row, created_by=changed_by)


_FIELDS_OF_A_BUILD = frozenset({"branch", "config_path", "resource_spec"})


@transaction.atomic
def delete_deployments(
    *, workspace_id: UUID, deployment_ids: Collection[UUID], with_projects: bool = False
) -> None:
    """Delete deployments: hide and stop them now, purge their data in a task.

    All or nothing: an unknown id fails the call. `with_projects`: also delete the projects to which
    they trace, with all runs, also those that other clients sent there.
    """
    deployments = Deployment.objects.for_workspace(workspace_id).present()
    rows = list(
        deployments.filter(pk__in=deployment_ids).select_for_update(no_key=True).order_by("pk")
    )
    if missing := set(deployment_ids) - {row.pk for row in rows}:
        raise core_errors.NotFound(
            errors=[{"deployment_id": str(missing_id)} for missing_id in sorted(missing)]
        )
    for row in rows:
        audit.record(Action.DEPLOYMENT_DELETED, row, before=audit.snapshot(row))
        row.status = DeploymentStatus.AWAITING_DELETE
        row.deleted_at = timezone.now()
        row.active_revision = None
        row.save(update_fields=["status", "deleted_at", "active_revision", "updated_at"])
        if row.ingest_key is not None:
            api_keys.revoke_key(key=row.ingest_key)
        for revision in row.revisions.unfinished():
            progress.advance(
                revision.pk, to=RevisionStatus.INTERRUPTED, detail="The deployment was deleted."
            )
        dispatch.purge_deployment(row.pk)
        if with_projects:
            _delete_tracing_project(row)


def _delete_tracing_project(deployment: Deployment) -> None:
    projects = Project.objects.for_workspace(deployment.workspace_id).present()
    # The project may have been deleted before, or have another name now.
    for project in projects.filter(name=deployment.name):
        tracing.delete_project(project=project)


def delete_workspace_deployments(workspace: Workspace) -> None:
    """Delete all deployments of a deleted workspace."""
    present = Deployment.objects.for_workspace(workspace).present()
    ids = list(present.values_list("pk", flat=True))
    delete_deployments(workspace_id=workspace.pk, deployment_ids=ids)


def purge_deployment(deployment_id: UUID) -> None:
    """Remove the files and rows of a deleted deployment. Safe to repeat."""
    deployments = Deployment.objects.across_workspaces(reason="the task has only the deployment id")
    row = deployments.filter(pk=deployment_id).exclude(deleted_at=None).first()
    if row is None:
        return
    for revision_id in row.revisions.values_list("pk", flat=True):
        build_dirs.remove_revision(revision_id)
    row.delete()


def normalize_config_path(path: str) -> str:
    """Return the normalized path; reject a path outside the repository."""
    parts = path.strip().removeprefix("./").split("/")
    if not all(part and part not in (".", "..") for part in parts) or "\0" in path:
        raise core_errors.Invalid(f"config_path {path!r} must be a path inside the repository.")
    return "/".join(parts)
