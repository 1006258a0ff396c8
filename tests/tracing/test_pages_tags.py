"""Tags on the pages of projects: put on and taken off, and a list narrowed by one."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.organizations.models import ResourceType, Tagging, TagKey
from apps.organizations.services import tags
from tests.console.conftest import person, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ProjectFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def workspace():
    return WorkspaceFactory()


@pytest.fixture
def stage(workspace) -> TagKey:
    return tags.create_key(workspace_id=workspace.pk, key="Stage")


@pytest.fixture
def production(stage):
    return tags.create_value(key=stage, value="production")


@pytest.fixture
def staging(stage):
    return tags.create_value(key=stage, value="staging")


def carried(project):
    found = tags.list_taggings(project.workspace_id, ResourceType.PROJECT, [project.pk])
    return [one.tag_value.value for one in found]


def at(project, page):
    return f"/o/{project.workspace_id}/projects/p/{project.pk}/{page}"


def test_an_editor_puts_a_tag_on_changes_it_and_takes_it_off(workspace, stage, production, staging):
    project = ProjectFactory(workspace=workspace)
    editor = signed_in(person(workspace, "editor"))
    said = []
    for value in (str(production.pk), str(staging.pk), "nonsense"):
        answer = editor.post(at(project, "tags"), {f"tag-{stage.pk}": value})
        said.append((answer.status_code, carried(project)))

    assert said == [(302, ["production"]), (302, ["staging"]), (302, [])]


def test_a_key_that_the_form_did_not_have_keeps_its_value(workspace, production):
    project = ProjectFactory(workspace=workspace)
    tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)

    signed_in(person(workspace, "editor")).post(at(project, "tags"), {})

    assert carried(project) == ["production"]


def test_a_viewer_sees_tags_and_changes_none_and_a_stranger_finds_nothing(
    workspace, stage, production
):
    project = ProjectFactory(workspace=workspace)
    tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)
    viewer, stranger = (
        signed_in(person(place, role))
        for place, role in ((workspace, "viewer"), (WorkspaceFactory(), "admin"))
    )
    body = {f"tag-{stage.pk}": ""}

    assert b"production" in viewer.get(at(project, "settings")).content
    assert viewer.post(at(project, "tags"), body).status_code == 403
    assert stranger.post(at(project, "tags"), body).status_code == 404
    assert Tagging.objects.for_workspace(workspace).count() == 1


def test_a_value_of_another_workspace_is_not_put_on(workspace, stage, production):
    other = WorkspaceFactory()
    foreign = tags.create_value(
        key=tags.create_key(workspace_id=other.pk, key="Stage"), value="foreign"
    )
    project = ProjectFactory(workspace=workspace)

    body = {f"tag-{stage.pk}": str(foreign.pk)}
    signed_in(person(workspace, "editor")).post(at(project, "tags"), body)

    assert carried(project) == []


def test_the_list_is_narrowed_by_a_tag_for_the_same_number_of_queries(workspace, production):
    page = signed_in(person(workspace, "editor"))
    address = f"/o/{workspace.pk}/projects"
    ProjectFactory(workspace=workspace, name="bare")
    counts = []
    for names in (["one"], ["two", "three", "four"]):
        for name in names:
            project = ProjectFactory(workspace=workspace, name=name)
            tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            answer = page.get(address, {"tag": str(production.pk)})
        counts.append(len(captured))

    shown = {row.project.name for row in answer.context["rows"]}
    assert shown == {"one", "two", "three", "four"}
    assert counts[0] == counts[1]
    assert len(page.get(address, {"tag": "nonsense"}).context["rows"]) >= len(shown) + 1
