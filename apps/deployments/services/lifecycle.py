"""Making deployments, changing them, and taking them away."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.api_keys import services as api_keys
from apps.audit.actions import Action
from apps.core import errors as core_errors
from apps.core import secrets
from apps.deployments import build_dirs, errors, git, tasks
from apps.deployments.models import Deployment, Revision, Source
from apps.deployments.services import audit, environment, progress, revisions, slugs
from apps.deployments.statuses import DeploymentStatus, RevisionStatus
from apps.organizations.models import User, Workspace
from apps.tracing import services as tracing

DEPLOYMENT_TYPES = frozenset(
    {"dev_free", "dev", "prod", "dev_zero", "dev_free_zero", "serverless", "dedicated"}
)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")


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
    """A deployment from Git, with its address, ingest-only key, tracing project, first revision.

    All or nothing; refuses a name that the workspace has already.
    """
    if not _NAME.fullmatch(name):
        raise core_errors.Invalid(
            "A name has 1 to 63 letters, digits, dashes and underscores, and begins and ends with"
            " a letter or digit."
        )
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
            repo_url=git.checked_address(repo_url),
            branch=git.checked_ref(branch),
            config_path=checked_config_path(config_path),
            ingest_key=key,
            ingest_secret=secrets.encrypt(secret),
            created_by=created_by,
            **options,
        )
    )
    tracing.ensure_project(workspace_id=workspace.pk, name=name)
    audit.record(
        Action.DEPLOYMENT_CREATED, deployment, after=audit.seen(deployment, variables or {})
    )
    environment.replace_variables(deployment=deployment, variables=variables or {})
    revisions.create_revision(deployment=deployment, created_by=created_by)
    return deployment


def _with_free_slug(deployment: Deployment) -> Deployment:
    for slug in slugs.candidates(deployment.name):
        deployment.slug = slug
        try:
            # The constraints, not a look before the insert, decide what is free.
            with transaction.atomic():
                deployment.save(force_insert=True)
        except IntegrityError as error:
            if "deployment_name_once" in str(error):
                raise errors.NameTaken(deployment.name) from None
        else:
            return deployment
    raise AssertionError("there is always another slug")


@transaction.atomic
def update_deployment(
    *,
    deployment: Deployment,
    changes: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
    new_revision: bool = False,
    changed_by: User | None = None,
) -> Revision | None:
    """Change fields of the deployment and return the revision that this makes, if any.

    A new branch, config path, resource spec or set of variables makes one, so that what serves is
    always what was asked for; a new repository, a display name or a switch does not (unless
    `new_revision`). `variables` replace all; None or nothing leaves them as they are.
    """
    deployments = Deployment.objects.for_workspace(deployment.workspace_id).present()
    row = deployments.select_for_update(no_key=True).get(pk=deployment.pk)
    before = audit.seen(row)
    checks = {
        "repo_url": git.checked_address,
        "branch": git.checked_ref,
        "config_path": checked_config_path,
    }
    for name, value in changes.items():
        setattr(row, name, checks[name](value) if name in checks else value)
    row.save(update_fields=[*changes, "updated_at"])
    if changes:
        audit.record(Action.DEPLOYMENT_UPDATED, row, before, audit.seen(row))
    if variables:
        names = environment.names_of(row)
        environment.replace_variables(deployment=row, variables=variables)
        audit.record(
            Action.DEPLOYMENT_SECRETS_CHANGED, row, {"names": names}, {"names": sorted(variables)}
        )
    if not (new_revision or variables or changes.keys() & _MAKE_A_REVISION):
        return None
    return revisions.create_revision(deployment=row, created_by=changed_by)


_MAKE_A_REVISION = frozenset({"branch", "config_path", "resource_spec"})


@transaction.atomic
def delete_deployments(*, workspace_id: UUID, deployment_ids: Collection[UUID]) -> None:
    """Take deployments away: at once from lists and addresses, soon from disk and database.

    All or nothing; an id that is unknown here refuses the whole call.
    """
    deployments = Deployment.objects.for_workspace(workspace_id).present()
    rows = list(
        deployments.filter(pk__in=deployment_ids).select_for_update(no_key=True).order_by("pk")
    )
    if missing := set(deployment_ids) - {row.pk for row in rows}:
        raise core_errors.NotFound(errors=[{"deployment_id": str(one)} for one in sorted(missing)])
    for row in rows:
        audit.record(Action.DEPLOYMENT_DELETED, row, before=audit.seen(row))
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
        tasks.send(tasks.erase_deployment, row.pk)


def delete_all(workspace: Workspace) -> None:
    """The workspace is deleted: no agent of it answers any more."""
    present = Deployment.objects.for_workspace(workspace).present()
    ids = list(present.values_list("pk", flat=True))
    delete_deployments(workspace_id=workspace.pk, deployment_ids=ids)


def erase_deployment(deployment_id: UUID) -> None:
    """Remove what a deleted deployment left on disk and in the database. Safe to repeat."""
    deployments = Deployment.objects.across_workspaces(reason="a message names it by its id")
    row = deployments.filter(pk=deployment_id).exclude(deleted_at=None).first()
    if row is None:
        return
    for revision_id in row.revisions.values_list("pk", flat=True):
        build_dirs.remove_revision(revision_id)
    row.delete()


def checked_config_path(path: str) -> str:
    """A path inside the repository; refuses what leaves it."""
    parts = path.strip().removeprefix("./").split("/")
    if not all(part and part not in (".", "..") for part in parts) or "\0" in path:
        raise core_errors.Invalid(f"{path!r} is not the path of a file in the repository.")
    return "/".join(parts)
