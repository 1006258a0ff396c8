"""Creating, finding, updating and deleting projects; numbering and progress of experiments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.connections import raw_cursor
from apps.core.ids import uuid7
from apps.core.tenancy import get_or_404
from apps.organizations.models import ResourceType, Workspace
from apps.organizations.services import tags
from apps.tracing import dispatch, errors
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services import retention

MAX_NAME_LENGTH = 1000


def get_project(workspace_id: UUID, project_id: UUID) -> Project:
    """Return the workspace's project, or raise 404."""
    return get_or_404(Project.objects.for_workspace(workspace_id).present(), pk=project_id)


def ensure_project(workspace_id: UUID, name: str) -> Project:
    """Return the project of that name, creating it if missing. Idempotent and race-safe."""
    project_id = ensure_projects(workspace_id, [name])[name]
    return Project.objects.for_workspace(workspace_id).get(pk=project_id)


def ensure_default_project(workspace_id: UUID) -> Project:
    """Return the project of runs that name no project. SDKs expect that it always exists."""
    return ensure_project(workspace_id, DEFAULT_PROJECT)


def provision_workspace(workspace: Workspace) -> None:
    """Create the default project, because clients read the workspace id from the first project."""
    ensure_default_project(workspace.pk)


def deprovision_workspace(workspace: Workspace) -> None:
    """Delete all projects; a task removes their runs, files, feedback and links."""
    projects = Project.objects.for_workspace(workspace).present()
    projects.update(deleted_at=timezone.now())
    # The periodic task also finds them if this message is lost.
    dispatch.remove_deleted_projects()


def ensure_projects(
    workspace_id: UUID,
    names: Collection[str],
    find_start: Callable[[str], datetime] | None = None,
) -> dict[str, UUID]:
    """Return the ids of the projects of these names; missing ones are created.

    `find_start` returns the start time of a missing project; without it, it starts now.
    Concurrent callers get the same project, because a unique constraint allows only one.
    """
    ids = _find_ids(workspace_id, names)
    missing_names = sorted(set(names) - ids.keys())
    if missing_names:
        find_start = find_start or (lambda _name: timezone.now())
        new_projects = [
            _build_project(workspace_id, name=name, start_time=find_start(name))
            for name in missing_names
        ]
        Project.objects.for_workspace(workspace_id).bulk_create(new_projects, ignore_conflicts=True)
        ids |= _find_ids(workspace_id, missing_names)
    return ids


def ensure_addressed_project(
    workspace_id: UUID,
    agent_id: str,
    environment: str,
    find_start: Callable[[], datetime] = timezone.now,
) -> UUID:
    """Return the id of the project of an agent's environment, creating it if missing. Race-safe.

    The name combines agent and environment, with a number if another project has the name.
    """
    projects = Project.objects.for_workspace(workspace_id).present()
    at_address = projects.filter(agent_id=agent_id, agent_environment=environment)
    for number in range(1, 100):
        existing = at_address.values_list("pk", flat=True).first()
        if existing is not None:
            return existing
        name = f"{agent_id}-{environment.lower()}" + (f"-{number}" if number > 1 else "")
        project = _build_project(
            workspace_id,
            name=name,
            agent_id=agent_id,
            agent_environment=environment,
            start_time=find_start(),
        )
        projects.bulk_create([project], ignore_conflicts=True)
    raise errors.ProjectNameTaken


def _build_project(workspace_id: UUID, **fields: Any) -> Project:
    """Build an unsaved project with the workspace's default tier."""
    project = Project(workspace_id=workspace_id, **fields)
    workspace = Workspace.objects.get(pk=workspace_id)
    retention.set_tier(
        project, fields.get("trace_tier") or retention.policy_for_workspace(workspace).default_tier
    )
    return project


def _find_ids(workspace_id: UUID, names: Collection[str]) -> dict[str, UUID]:
    # Raw SQL: every ingest request executes this, and building a query set costs too much.
    statement = (
        "SELECT name, id FROM tracing_project"
        " WHERE workspace_id = %s AND name = ANY(%s) AND deleted_at IS NULL"
    )
    with raw_cursor() as cursor:
        return dict(cursor.execute(statement, [workspace_id, list(names)], prepare=True))


@transaction.atomic
def create_project(
    *,
    workspace_id: UUID,
    name: str | None,
    upsert: bool = False,
    tag_value_ids: Collection[UUID] = (),
    **fields: Any,
) -> Project:
    """Create a project with tags. A missing name is generated.

    A repeated call with the same client-generated id returns the existing project. If
    another project has the name, raises `ProjectNameTaken` or, with `upsert`, updates and returns
    that project.
    """
    project = _create_or_update(workspace_id, name, upsert=upsert, **fields)
    if tag_value_ids:
        tags.add_tags(
            workspace_id=workspace_id,
            value_ids=tag_value_ids,
            resource_type=_tag_resource_type(project),
            resource_id=project.pk,
        )
    return project


def _tag_resource_type(project: Project) -> ResourceType:
    return ResourceType.EXPERIMENT if project.reference_dataset_id else ResourceType.PROJECT


def _create_or_update(
    workspace_id: UUID, name: str | None, *, upsert: bool, **fields: Any
) -> Project:
    projects = Project.objects.for_workspace(workspace_id).present()
    name = name or f"project-{uuid7().hex[-8:]}"
    project = _build_project(workspace_id, name=name, **fields)
    try:
        with transaction.atomic():
            project.save(force_insert=True)
    except IntegrityError:
        existing = projects.filter(name=name).first()
        if existing is None:
            # The id exists, perhaps in another workspace, which the message must not reveal.
            raise errors.ProjectNameTaken("A project with this `id` already exists.") from None
        if upsert:
            changes = {key: value for key, value in fields.items() if key != "id"}
            return update_project(project=existing, changes=changes)
        if existing.pk != fields.get("id"):
            raise errors.ProjectNameTaken(f"A project named {name!r} already exists.") from None
        return existing
    return project


def update_project(*, project: Project, changes: Mapping[str, Any]) -> Project:
    """Set the changed fields; a name of another project raises `ProjectNameTaken`."""
    if not changes:
        return project
    tier_before = project.trace_tier
    for field, value in changes.items():
        setattr(project, field, value)
    if "trace_tier" in changes:
        retention.set_tier(project, changes["trace_tier"])
    try:
        with transaction.atomic():
            project.save(update_fields=[*changes, "short_since", "updated_at"])
            if project.trace_tier != tier_before:
                _record_tier_change(project, tier_before)
    except IntegrityError:
        raise errors.ProjectNameTaken(
            f"A project named {changes.get('name')!r} already exists."
        ) from None
    return project


def _record_tier_change(project: Project, before: str) -> None:
    record(
        Action.RETENTION_CHANGED,
        Target("retention", project.pk, project.name),
        before={"trace_tier": before},
        after={"trace_tier": project.trace_tier},
        workspace_id=project.workspace_id,
    )


@transaction.atomic
def delete_project(*, project: Project) -> None:
    """Hide the project and free its name; its runs, files and feedback are removed by a task."""
    Project.objects.for_workspace(project.workspace_id).filter(pk=project.pk).update(
        deleted_at=timezone.now()
    )
    tags.delete_taggings(
        workspace_id=project.workspace_id,
        resource_type=_tag_resource_type(project),
        resource_id=project.pk,
    )
    record(
        Action.PROJECT_DELETED,
        Target("project", project.pk, project.name),
        before={"name": project.name, "trace_tier": project.trace_tier},
        workspace_id=project.workspace_id,
    )
    # The periodic task also finds the project if this message is lost.
    dispatch.remove_deleted_projects()


def experiment_numbers(workspace_id: UUID, projects: Collection[Project]) -> dict[UUID, int]:
    """Return each project's ordinal among the experiments of its dataset, from 1."""
    datasets = {
        project.reference_dataset_id for project in projects if project.reference_dataset_id
    }
    if not datasets:
        return {}
    siblings = Project.objects.for_workspace(workspace_id).present()
    experiments = siblings.filter(reference_dataset_id__in=datasets).annotate(
        number=Window(
            RowNumber(),
            partition_by=F("reference_dataset_id"),
            order_by=[F("start_time").asc(), F("pk").asc()],
        )
    )
    return dict(experiments.values_list("pk", "number"))


def experiment_progress(
    project: Project, traces: int, feedback: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the completed share of the plan; None without a plan."""
    plan = project.plan or {}
    examples = plan.get("num_examples")
    if not project.reference_dataset_id or not examples:
        return None
    expected = examples * (plan.get("num_repetitions") or 1)
    return {
        "expected_run_count": expected,
        "run_progress": min(traces / expected, 1.0),
        "evaluator_progress": {
            key: min((feedback.get(key, {}).get("n") or 0) / expected, 1.0)
            for key in plan.get("evaluator_keys") or ()
        },
    }
