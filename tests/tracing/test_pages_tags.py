"""Tags on the project pages: adding and removing them, and filtering the list by a tag."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.organizations.models import ResourceType, Tagging, TagKey
from apps.organizations.services import tags
from tests.console.conftest import create_workspace_user, signed_in
from tests.factories.organizations import WorkspaceFactory
from tests.factories.tracing import ProjectFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage(workspace) -> TagKey:
    return tags.create_key(workspace_id=workspace.pk, key="Stage")


@pytest.fixture
def production(stage):
    return tags.create_value(key=stage, value="production")


@pytest.fixture
def staging(stage):
    return tags.create_value(key=stage, value="staging")


def tag_values(project):
    taggings = tags.list_taggings(project.workspace_id, ResourceType.PROJECT, [project.pk])
    return [tagging.tag_value.value for tagging in taggings]


def project_url(project, page):
    return f"/o/{project.workspace_id}/projects/p/{project.pk}/{page}"


def test_an_editor_adds_changes_and_removes_a_tag(workspace, stage, production, staging):
    project = ProjectFactory(workspace=workspace)
    editor = signed_in(create_workspace_user(workspace, "editor"))
    results = []
    for value in (str(production.pk), str(staging.pk), "nonsense"):
        response = editor.post(project_url(project, "tags"), {f"tag-{stage.pk}": value})
        results.append((response.status_code, tag_values(project)))

    assert results == [(302, ["production"]), (302, ["staging"]), (302, [])]


def test_a_tag_key_missing_in_the_form_keeps_its_value(workspace, production):
    project = ProjectFactory(workspace=workspace)
    tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)

    signed_in(create_workspace_user(workspace, "editor")).post(project_url(project, "tags"), {})

    assert tag_values(project) == ["production"]


def test_a_viewer_reads_tags_and_an_outsider_finds_no_project(workspace, stage, production):
    project = ProjectFactory(workspace=workspace)
    tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)
    viewer, outsider = (
        signed_in(create_workspace_user(member_of, role))
        for member_of, role in ((workspace, "viewer"), (WorkspaceFactory(), "admin"))
    )
    body = {f"tag-{stage.pk}": ""}

    assert b"production" in viewer.get(project_url(project, "settings")).content
    assert viewer.post(project_url(project, "tags"), body).status_code == 403
    assert outsider.post(project_url(project, "tags"), body).status_code == 404
    assert Tagging.objects.for_workspace(workspace).count() == 1


def test_a_tag_value_of_another_workspace_is_not_added(workspace, stage, production):
    other = WorkspaceFactory()
    foreign_value = tags.create_value(
        key=tags.create_key(workspace_id=other.pk, key="Stage"), value="foreign"
    )
    project = ProjectFactory(workspace=workspace)

    body = {f"tag-{stage.pk}": str(foreign_value.pk)}
    signed_in(create_workspace_user(workspace, "editor")).post(project_url(project, "tags"), body)

    assert tag_values(project) == []


@pytest.mark.usefixtures("unexpired_caches")
def test_filtering_the_list_by_a_tag_takes_a_constant_number_of_queries(workspace, production):
    page = signed_in(create_workspace_user(workspace, "editor"))
    address = f"/o/{workspace.pk}/projects"
    ProjectFactory(workspace=workspace, name="bare")
    counts = []
    for names in (["one"], ["two", "three", "four"]):
        for name in names:
            project = ProjectFactory(workspace=workspace, name=name)
            tags.tag(value=production, resource_type=ResourceType.PROJECT, resource_id=project.pk)
        with CaptureQueriesContext(connection) as captured:
            response = page.get(address, {"tag": str(production.pk)})
        counts.append(len(captured))

    listed = {row.project.name for row in response.context["rows"]}
    assert listed == {"one", "two", "three", "four"}
    assert counts[0] == counts[1]
    assert len(page.get(address, {"tag": "nonsense"}).context["rows"]) >= len(listed) + 1
