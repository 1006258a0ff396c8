"""Making, finding, changing and deleting projects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.audit.actions import Action
from apps.audit.services import Target, record
from apps.core.ids import uuid7
from apps.core.raw_sql import raw_cursor
from apps.organizations.models import ResourceType, Workspace
from apps.organizations.services import tags
from apps.tracing import errors, tasks
from apps.tracing.models import DEFAULT_PROJECT, Project
from apps.tracing.services import retention

NAME_LENGTH = 1000


def ensure_project(workspace_id: UUID, name: str) -> Project:
    """The workspace's project of that name, made if it is missing. Safe to repeat and to race."""
    project_id = ensure_projects(workspace_id, [name])[name]
    return Project.objects.for_workspace(workspace_id).get(pk=project_id)


def ensure_default_project(workspace_id: UUID) -> Project:
    """The project of runs that name none. A workspace always has it: SDKs look for its first."""
    return ensure_project(workspace_id, DEFAULT_PROJECT)


def ensure_projects(workspace_id: UUID, names: Collection[str]) -> dict[str, UUID]:
    """The ids of the projects of these names; missing ones are made.

    The constraint decides between two that make the same project at once, and both get it.
    """
    known = _known(workspace_id, names)
    missing = sorted(set(names) - known.keys())
    if missing:
        fresh = [_fresh(workspace_id, name=name) for name in missing]
        Project.objects.for_workspace(workspace_id).bulk_create(fresh, ignore_conflicts=True)
        known |= _known(workspace_id, missing)
    return known


def ensure_addressed_project(workspace_id: UUID, agent_id: str, environment: str) -> UUID:
    """The project of an agent in one of its environments, made if it is missing. Safe to race.

    It is named for both; where that name is taken by another project, it gets a number too.
    """
    projects = Project.objects.for_workspace(workspace_id).present()
    at_address = projects.filter(agent_id=agent_id, agent_environment=environment)
    for number in range(1, 100):
        there = at_address.values_list("pk", flat=True).first()
        if there is not None:
            return there
        name = f"{agent_id}-{environment.lower()}" + (f"-{number}" if number > 1 else "")
        project = _fresh(workspace_id, name=name, agent_id=agent_id, agent_environment=environment)
        projects.bulk_create([project], ignore_conflicts=True)
    raise errors.ProjectNameTaken


def _fresh(workspace_id: UUID, **fields: Any) -> Project:
    """A project to be saved, in the tier that new ones get here."""
    project = Project(workspace_id=workspace_id, **fields)
    workspace = Workspace.objects.get(pk=workspace_id)
    retention.set_tier(
        project, fields.get("trace_tier") or retention.lives_of(workspace).default_tier
    )
    return project


def _known(workspace_id: UUID, names: Collection[str]) -> dict[str, UUID]:
    # Asked by every request that brings runs, where the price of a queryset shows.
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
    """Make a project, and put the tags on it. A missing name gets a generated one.

    A repeat with the same client-sent id returns the project that is there. A taken name raises
    `ProjectNameTaken`, or with `upsert` updates and returns the one that has it.
    """
    project = _made(workspace_id, name, upsert=upsert, **fields)
    if tag_value_ids:
        tags.add_tags(
            workspace_id=workspace_id,
            value_ids=tag_value_ids,
            resource_type=_tagged_as(project),
            resource_id=project.pk,
        )
    return project


def _tagged_as(project: Project) -> ResourceType:
    return ResourceType.EXPERIMENT if project.reference_dataset_id else ResourceType.PROJECT


def _made(workspace_id: UUID, name: str | None, *, upsert: bool, **fields: Any) -> Project:
    projects = Project.objects.for_workspace(workspace_id).present()
    name = name or f"project-{uuid7().hex[-8:]}"
    project = _fresh(workspace_id, name=name, **fields)
    try:
        with transaction.atomic():
            project.save(force_insert=True)
    except IntegrityError:
        there = projects.filter(name=name).first()
        if there is None:  # the id is taken, perhaps in another workspace: say no more than that
            raise errors.ProjectNameTaken("A project of that id already exists.") from None
        if upsert:
            changes = {key: value for key, value in fields.items() if key != "id"}
            return update_project(project=there, changes=changes)
        if there.pk != fields.get("id"):
            raise errors.ProjectNameTaken(f"A project named {name!r} already exists.") from None
        return there
    return project


def update_project(*, project: Project, changes: Mapping[str, Any]) -> Project:
    """Set the given fields and return the project; a taken name raises `ProjectNameTaken`."""
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
                _record_tier(project, tier_before)
    except IntegrityError:
        raise errors.ProjectNameTaken(
            f"A project named {changes.get('name')!r} already exists."
        ) from None
    return project


def _record_tier(project: Project, before: str) -> None:
    record(
        Action.RETENTION_CHANGED,
        Target("retention", project.pk, project.name),
        before={"trace_tier": before},
        after={"trace_tier": project.trace_tier},
        workspace_id=project.workspace_id,
    )


@transaction.atomic
def delete_project(*, project: Project) -> None:
    """Hide the project and free its name; its runs, files and feedback are removed soon after."""
    Project.objects.for_workspace(project.workspace_id).filter(pk=project.pk).update(
        deleted_at=timezone.now()
    )
    tags.delete_taggings(
        workspace_id=project.workspace_id,
        resource_type=_tagged_as(project),
        resource_id=project.pk,
    )
    record(
        Action.PROJECT_DELETED,
        Target("project", project.pk, project.name),
        before={"name": project.name, "trace_tier": project.trace_tier},
        workspace_id=project.workspace_id,
    )
    # A sweeper finds the project too, should the message be lost.
    transaction.on_commit(tasks.remove_deleted_projects.delay, robust=True)
